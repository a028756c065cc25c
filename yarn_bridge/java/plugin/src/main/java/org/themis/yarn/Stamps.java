package org.themis.yarn;

import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Which lease update a report may claim to have been applied before its entries were read. A placement that the gate
 * admitted under older leases may still be on its way into the books when an update comes; the update counts only when
 * all such placements have landed. Placements never wait for this.
 */
class Stamps {
  /** An update: epoch and sequence number. A value. */
  static final class Stamp {
    static final Stamp NONE = new Stamp(0, 0);
    final long epoch;
    final long seq;

    Stamp(long epoch, long seq) {
      this.epoch = epoch;
      this.seq = seq;
    }

    boolean isSameAs(Stamp other) {
      return other != null && epoch == other.epoch && seq == other.seq;
    }
  }

  /** A placement takes milliseconds; one that is on for so long has been lost by a failure. */
  static final long FLIGHT_MS_MAX = 10_000;
  /** Number of a flight that was never begun. */
  static final long NO_FLIGHT = 0;

  private final AtomicLong numbers = new AtomicLong();
  /** Number and System.nanoTime() of its beginning. */
  private final ConcurrentHashMap<Long, Long> flights = new ConcurrentHashMap<>();
  private Stamp landed = Stamp.NONE;
  private Stamp pending;
  private Set<Long> before = Collections.emptySet();

  /** A placement asks the gate now; {@link #land} it whatever comes of it. */
  long begin() {
    long number = numbers.incrementAndGet();
    flights.put(number, System.nanoTime());
    return number;
  }

  /** Its container is in the books, or will never be. */
  void land(long number) {
    flights.remove(number);
  }

  /** How many placements have ever asked. */
  long begun() {
    return numbers.get();
  }

  boolean hasFlights() {
    return !flights.isEmpty();
  }

  /** Forgets the placements that will never land. Call it only when the books have been read anew from YARN. */
  void landLost(long nowNanos) {
    flights.values().removeIf(began -> nowNanos - began > FLIGHT_MS_MAX * 1_000_000);
  }

  /** An update is in force from now on. */
  synchronized void applied(long epoch, long seq) {
    current();
    pending = new Stamp(epoch, seq);
    before = new HashSet<>(flights.keySet());
  }

  /** The last update whose older placements have all landed. */
  synchronized Stamp current() {
    if (pending != null) {
      before.retainAll(flights.keySet());
      if (before.isEmpty()) {
        landed = pending;
        pending = null;
      }
    }
    return landed;
  }
}
