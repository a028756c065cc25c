package org.themis.yarn;

import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The wall between our mistakes and the ResourceManager's threads: a Throwable on its scheduler thread ends its JVM.
 * What is caught is logged, at most once in {@value #QUIET_MS} ms a place.
 */
final class Guard {
  static final long QUIET_MS = 10_000;
  private static final Logger LOG = LoggerFactory.getLogger(Guard.class);
  private static final ConcurrentHashMap<String, Long> LAST_LOG_NANOS = new ConcurrentHashMap<>();

  private Guard() {
  }

  /** A piece of our own work inside one of the ResourceManager's calls. */
  interface Work {
    void run() throws Exception;
  }

  /** True where it came to its end. */
  static boolean run(String place, Work work) {
    try {
      work.run();
      return true;
    } catch (Throwable t) {
      caught(place, t);
      return false;
    }
  }

  /** For callers that need an answer of their own after a failure. {@code place} is a literal, so the map stays small. */
  static void caught(String place, Throwable t) {
    try {
      if (mayLog(place)) {
        LOG.error("Themis failed in " + place + "; the ResourceManager goes on without it", t);
      }
    } catch (Throwable ignored) {
      // A logger that fails (out of memory, say) must not become the second Throwable.
    }
  }

  /** True at most once in {@value #QUIET_MS} ms for one place. */
  static boolean mayLog(String place) {
    long now = System.nanoTime();
    Long last = LAST_LOG_NANOS.get(place);
    if (last != null && now - last < QUIET_MS * 1_000_000) {
      return false;
    }
    LAST_LOG_NANOS.put(place, now);
    return true;
  }
}
