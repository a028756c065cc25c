package org.themis.yarn;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Decides by which rule the gate works. Scheduler threads only read one volatile field; {@link #tick} moves it.
 * Instants are milliseconds of a monotonic clock that the caller reads.
 */
class Fallback {
  private static final Logger LOG = LoggerFactory.getLogger(Fallback.class);

  /** What the administrator wants once nobody leads any more. */
  enum Kind { PASS_THROUGH, CLOSED }

  /** The rule in force. */
  enum Mode {
    /** No full update in this activation yet: nothing new gets GPUs. */
    WAITING,
    /** Leases rule. */
    LEASES,
    /** The arbiter looks on only: plain CapacityScheduler, until a full update says otherwise. */
    OBSERVING,
    /** Nobody leads: plain CapacityScheduler. */
    PASS_THROUGH,
    /** Nobody leads: nothing new gets GPUs. */
    CLOSED;

    /** True where the gate lets everything in. */
    boolean isOpen() {
      return this == OBSERVING || this == PASS_THROUGH;
    }
  }

  private final Kind kind;
  private final long afterMs;
  private long lastSignMs;
  private boolean hasLeases;
  private boolean isObserving;
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
    isObserving = false;
    mode = Mode.WAITING;
  }

  /** An accepted message. {@code hasLeases}: a full update has been accepted in this activation, and it said which. */
  synchronized void signOfLife(long nowMs, boolean hasLeases, boolean isObserving) {
    lastSignMs = nowMs;
    this.hasLeases = hasLeases;
    this.isObserving = isObserving;
    move(led(), 0);
  }

  private Mode led() {
    return !hasLeases ? Mode.WAITING : isObserving ? Mode.OBSERVING : Mode.LEASES;
  }

  synchronized void tick(long nowMs) {
    // A clock that has gone back says nothing: what holds goes on.
    long silentMs = nowMs < lastSignMs ? 0 : nowMs - lastSignMs;
    // One who only looks on may fall silent for ever: nothing hung on its word.
    if (silentMs < afterMs || led() == Mode.OBSERVING) {
      move(led(), silentMs);
    } else {
      move(kind == Kind.PASS_THROUGH ? Mode.PASS_THROUGH : Mode.CLOSED, silentMs);
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
