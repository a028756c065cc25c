package org.themis.yarn;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The switches of the test build. A control file says which points are faulty now, one {@code POINT MODE} a line; what
 * is in force, and how often each point was struck since it is, stands in the file beside it that ends in {@code .ack}.
 */
final class Faults {
  /** How a point fails. */
  enum Mode { THROW, BLOCK, GARBAGE }

  /** What a thrown fault is; an Error, for that is the worst that code can throw. */
  static final class Fault extends Error {
    private static final long serialVersionUID = 1L;

    Fault(String point) {
      super("fault at " + point);
    }
  }

  static final long POLL_MS = 50;
  private static final ObjectMapper JSON = new ObjectMapper();
  private static volatile Map<String, Mode> active = Collections.emptyMap();
  private static volatile Map<String, AtomicLong> hits = new ConcurrentHashMap<>();
  /** Locks that a thread of ours can be made to sit on. */
  private static final Map<String, Object> LOCKS = new ConcurrentHashMap<>();
  private static final Object CHANGED = new Object();

  private Faults() {
  }

  /** A point on any thread. True where the caller has to answer garbage. */
  static boolean strike(String point) {
    Mode mode = active.get(point);
    if (mode == null) {
      return false;
    }
    hits.computeIfAbsent(point, name -> new AtomicLong()).incrementAndGet();
    switch (mode) {
      case THROW:
        throw new Fault(point);
      case BLOCK:
        sit(point);
        return false;
      default:
        return true;
    }
  }

  static void lock(String point, Object lock) {
    LOCKS.put(point, lock);
  }

  private static void sit(String point) {
    try {
      synchronized (CHANGED) {
        while (active.get(point) == Mode.BLOCK) {
          CHANGED.wait();
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Begins to follow the control file, on a thread of its own. */
  static void follow(Path control) {
    Thread thread = new Thread(() -> {
      String said = null;
      while (true) {
        try {
          String text = Files.exists(control) ? new String(Files.readAllBytes(control), StandardCharsets.UTF_8) : "";
          if (!text.equals(said)) {
            said = text;
            set(parse(text));
          }
          acknowledge(control, said);
          Thread.sleep(POLL_MS);
        } catch (IOException e) {
          throw new IllegalStateException(e);
        } catch (InterruptedException e) {
          return;
        }
      }
    }, "themis-faults");
    thread.setDaemon(true);
    thread.start();
  }

  static Map<String, Mode> parse(String text) {
    Map<String, Mode> faults = new HashMap<>();
    for (String line : text.split("\n")) {
      String[] words = line.trim().split(" ");
      if (words.length == 2) {
        faults.put(words[0], Mode.valueOf(words[1].toUpperCase(java.util.Locale.ROOT)));
      }
    }
    return faults;
  }

  static void set(Map<String, Mode> faults) {
    synchronized (CHANGED) {
      hits = new ConcurrentHashMap<>();
      active = faults;
      CHANGED.notifyAll();
    }
    for (Map.Entry<String, Mode> fault : faults.entrySet()) {
      Object lock = LOCKS.get(fault.getKey());
      if (lock != null && fault.getValue() == Mode.BLOCK) {
        Thread holder = new Thread(() -> hold(fault.getKey(), lock), "themis-faults-" + fault.getKey());
        holder.setDaemon(true);
        holder.start();
      }
    }
  }

  private static void hold(String point, Object lock) {
    if (lock instanceof ReentrantLock) {
      ((ReentrantLock) lock).lock();
      try {
        strike(point);
      } finally {
        ((ReentrantLock) lock).unlock();
      }
    } else {
      synchronized (lock) {
        strike(point);
      }
    }
  }

  private static void acknowledge(Path control, String said) throws IOException {
    Map<String, Object> answer = new TreeMap<>();
    answer.put("said", said);
    answer.put("hits", new TreeMap<>(hits));
    Path file = control.resolveSibling(control.getFileName() + ".ack");
    Path next = control.resolveSibling(control.getFileName() + ".new");
    Files.write(next, JSON.writeValueAsBytes(answer));
    Files.move(next, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }
}
