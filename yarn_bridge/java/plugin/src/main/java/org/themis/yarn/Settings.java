package org.themis.yarn;

import org.apache.hadoop.conf.Configuration;

/** What yarn-site.xml says, read once, and the plugin's fixed limits. */
final class Settings {
  static final String GATEWAY_DIR = "themis.gateway.dir";
  static final String FALLBACK = "themis.fallback";
  static final String FALLBACK_AFTER_MS = "themis.fallback.after-ms";
  static final String OUTBOX_MAX = "themis.outbox.max";

  static final long FALLBACK_AFTER_MS_DEFAULT = 120_000;
  static final int OUTBOX_MAX_DEFAULT = 20_000;
  /** 300 MB of heap, about. */
  static final int OUTBOX_MAX_MAX = 1_000_000;

  /** Leases in force at once; 4,000 nodes of 16 GPUs fit. */
  static final int LEASES_MAX = 65_536;
  /** One message to {@code apply} or {@code diagnostics}: LEASES_MAX leases at 250 bytes each. */
  static final int MESSAGE_BYTES_MAX = 16 << 20;
  /** Leased to one application on one node. */
  static final int NODE_GPUS_MAX = 4_096;
  static final int NAME_CHARS_MAX = 512;
  /** A drain further away than this is a mistake in the sender, not a plan. */
  static final long KILL_IN_MS_MAX = 24L * 3600 * 1000;
  /** Changes told in one report; the reader asks again for the rest. */
  static final int CHANGES_PER_REPORT_MAX = 5_000;
  static final int WAIT_MS_MAX = 1_000;
  static final int DIAGNOSTICS_CHARS_MAX = 1_000;
  /** Lines logged for one lease update; past it one line says how many more there were. */
  static final int LOG_LINES_PER_UPDATE_MAX = 1_000;

  private final String gatewayDir;
  private final Fallback.Kind fallback;
  private final long fallbackAfterMs;
  private final int outboxMax;

  private Settings(String gatewayDir, Fallback.Kind fallback, long fallbackAfterMs, int outboxMax) {
    this.gatewayDir = gatewayDir;
    this.fallback = fallback;
    this.fallbackAfterMs = fallbackAfterMs;
    this.outboxMax = outboxMax;
  }

  /**
   * Reads the keys that begin with {@code themis.}.
   *
   * @throws IllegalArgumentException naming the key, where a value is unusable: the ResourceManager then does not start
   */
  static Settings from(Configuration conf) {
    long afterMs = number(conf, FALLBACK_AFTER_MS, FALLBACK_AFTER_MS_DEFAULT, 0, Integer.MAX_VALUE);
    int outboxMax = (int) number(conf, OUTBOX_MAX, OUTBOX_MAX_DEFAULT, 1, OUTBOX_MAX_MAX);
    return new Settings(conf.getTrimmed(GATEWAY_DIR, ""),
        kindOf(conf.getTrimmed(FALLBACK, "pass_through")), afterMs, outboxMax);
  }

  private static long number(Configuration conf, String key, long absent, long min, long max) {
    String text = conf.getTrimmed(key, String.valueOf(absent));
    try {
      long value = Long.parseLong(text);
      if (value >= min && value <= max) {
        return value;
      }
    } catch (NumberFormatException e) {
      // Said below, with the key.
    }
    throw new IllegalArgumentException(key + " must be a whole number from " + min + " to " + max + ": " + text);
  }

  private static Fallback.Kind kindOf(String text) {
    switch (text) {
      case "pass_through":
        return Fallback.Kind.PASS_THROUGH;
      case "closed":
        return Fallback.Kind.CLOSED;
      default:
        throw new IllegalArgumentException(FALLBACK + " must be pass_through or closed: " + text);
    }
  }

  /** The folder of gateway.json; empty where the administrator named none. */
  String gatewayDir() {
    return gatewayDir;
  }

  Fallback.Kind fallback() {
    return fallback;
  }

  long fallbackAfterMs() {
    return fallbackAfterMs;
  }

  int outboxMax() {
    return outboxMax;
  }
}
