package org.themis.yarn;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Decides by which rule the gate works. Scheduler threads only read one volatile field; {@link #tick} moves it.
 * Instants are milliseconds of a monotonic clock that the caller reads.
 */
final class Fallback {
  private static final Logger LOG = LoggerFactory.getLogger(Fallback.class);

  /** What the administrator wants once nobody leads any more. */
  enum Kind { PASS_THROUGH, CLOSED }

  /** The rule in force. */
  enum Mode {
    /** No full update in this activation yet: nothing new gets GPUs. */
    WAITING,
    /** Leases rule. */
    LEASES,
    /** Nobody leads: plain CapacityScheduler. */
    PASS_THROUGH,
    /** Nobody leads: nothing new gets GPUs. */
    CLOSED
  }

  private final Kind kind;
  private final long afterMs;
  private long lastSignMs;
  private boolean hasLeases;
  private volatile Mode mode = Mode.WAITING;

  Fallback(Kind kind, long afterMs) {
    this.kind = kind;
    this.afterMs = afterMs;
  }

  Mode mode() {
    return mode;
  }

  /** A new activation: the clock starts and what was known is forgotten. */
  synchronized void start(long nowMs) {
    lastSignMs = nowMs;
    hasLeases = false;
    mode = Mode.WAITING;
  }

  /** An accepted message. {@code hasLeases}: a full update has been accepted in this activation. */
  synchronized void signOfLife(long nowMs, boolean hasLeases) {
    lastSignMs = nowMs;
    this.hasLeases = hasLeases;
    move(hasLeases ? Mode.LEASES : Mode.WAITING, 0);
  }

  synchronized void tick(long nowMs) {
    long silentMs = nowMs - lastSignMs;
    if (silentMs >= afterMs) {
      move(kind == Kind.PASS_THROUGH ? Mode.PASS_THROUGH : Mode.CLOSED, silentMs);
    } else {
      move(hasLeases ? Mode.LEASES : Mode.WAITING, silentMs);
    }
  }

  private void move(Mode next, long silentMs) {
    if (mode == next) {
      return;
    }
    boolean isFalling = next == Mode.PASS_THROUGH || next == Mode.CLOSED;
    if (isFalling) {
      LOG.warn("Themis falls back to {}: no accepted message for {} ms", next, silentMs);
    } else {
      LOG.info("Themis gate: {} (was {})", next, mode);
    }
    mode = next;
  }
}
