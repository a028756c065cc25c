package org.themis.yarn;

import java.util.List;

/** A parsed LeaseUpdate message. A value; its lists are not changed after it is built. */
final class LeaseUpdate {
  /** Ask for these leases' GPUs now, take them after {@code killInMs}. */
  static final class Drain {
    final List<String> leaseIds;
    final long killInMs;

    Drain(List<String> leaseIds, long killInMs) {
      this.leaseIds = leaseIds;
      this.killInMs = killInMs;
    }
  }

  final long epoch;
  final String startId;
  final long seq;
  final boolean isFull;
  final List<GateLease> leases;
  final List<String> removedLeaseIds;
  final List<Drain> drains;
  /** With {@code isFull}: the arbiter looks on only. */
  final boolean isObserving;

  LeaseUpdate(long epoch, String startId, long seq, boolean isFull, List<GateLease> leases,
      List<String> removedLeaseIds, List<Drain> drains, boolean isObserving) {
    this.epoch = epoch;
    this.startId = startId;
    this.seq = seq;
    this.isFull = isFull;
    this.leases = leases;
    this.removedLeaseIds = removedLeaseIds;
    this.drains = drains;
    this.isObserving = isObserving;
  }

  /** Says nothing about leases: only that the arbiter is there. */
  boolean isSignOfLife() {
    return !isFull && leases.isEmpty() && removedLeaseIds.isEmpty() && drains.isEmpty();
  }
}
