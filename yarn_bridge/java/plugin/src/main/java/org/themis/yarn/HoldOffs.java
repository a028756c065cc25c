package org.themis.yarn;

import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.yarn.api.records.ApplicationId;

/**
 * Where a proposal was refused at commit, its application is not tried again for a moment. A refused proposal costs
 * every application a heartbeat of that node, so a precheck that is wrong, again and again, would stop them all.
 * Safe for any thread; nothing here waits.
 */
final class HoldOffs {
  static final long MS = 500;
  /** Past it all are forgotten: they are only there to save work. */
  static final int MAX = 10_000;

  private final ConcurrentHashMap<String, Long> untilNanos = new ConcurrentHashMap<>();

  void add(ApplicationId application, String node) {
    if (untilNanos.size() >= MAX) {
      untilNanos.clear();
    }
    untilNanos.put(key(application, node), System.nanoTime() + MS * 1_000_000);
  }

  boolean isOn(ApplicationId application, String node) {
    if (untilNanos.isEmpty()) {
      return false;
    }
    String key = key(application, node);
    Long until = untilNanos.get(key);
    if (until != null && System.nanoTime() - until >= 0) {
      untilNanos.remove(key, until);
      return false;
    }
    return until != null;
  }

  /** Something was freed there. */
  void remove(ApplicationId application, String node) {
    if (!untilNanos.isEmpty()) {
      untilNanos.remove(key(application, node));
    }
  }

  /** Leases have changed. */
  void clear() {
    untilNanos.clear();
  }

  private static String key(ApplicationId application, String node) {
    return application + " " + node;
  }
}
