package org.themis.yarn;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.yarn.api.records.ApplicationId;

/**
 * The leases in force, and the fence before them. One writer at a time ({@link #apply} is synchronized); the gate reads
 * one immutable table, so it sees an update whole or not at all and never waits.
 */
class LeaseBook {
  /** What an update changed, for the log and the drain timer. */
  static final class Changes {
    final List<GateLease> granted = new ArrayList<>();
    final List<GateLease> removed = new ArrayList<>();
    /** Drained leases, each with its time in ms from now; also those that were draining already. */
    final Map<GateLease, Long> drained = new LinkedHashMap<>();
  }

  /** The answer, and what changed where the answer is yes. */
  static final class Outcome {
    final LeaseReply reply;
    final Changes changes;

    Outcome(LeaseReply reply, Changes changes) {
      this.reply = reply;
      this.changes = changes;
    }
  }

  private static final long NO_SEQ = Long.MIN_VALUE;

  private final int leasesMax;
  private String startId = "";
  private long epoch;
  private long seq = NO_SEQ;
  private boolean hasFull;
  private boolean isObserving;
  private Map<String, GateLease> leases = new HashMap<>();
  private volatile Map<ApplicationId, Map<String, Integer>> allowed = Collections.emptyMap();

  LeaseBook(int leasesMax) {
    this.leasesMax = leasesMax;
  }

  /** A new activation: leases and epochs of an earlier one count no more. */
  synchronized void start(String newStartId) {
    startId = newStartId;
    epoch = 0;
    seq = NO_SEQ;
    hasFull = false;
    isObserving = false;
    leases = new HashMap<>();
    allowed = Collections.emptyMap();
  }

  /** GPUs that an application's leases on a node, not draining, give it. */
  int allowed(ApplicationId application, String node) {
    Map<String, Integer> nodes = allowed.get(application);
    Integer gpus = nodes == null ? null : nodes.get(node);
    return gpus == null ? 0 : gpus;
  }

  /** True once a full update was accepted in this activation. */
  synchronized boolean hasFull() {
    return hasFull;
  }

  /** True where the last full update said that the arbiter only looks on. */
  synchronized boolean isObserving() {
    return isObserving;
  }

  synchronized int size() {
    return leases.size();
  }

  synchronized LeaseReply refuse(String reason) {
    return new LeaseReply(false, reason, epoch, startId, seq == NO_SEQ ? 0 : seq);
  }

  /** Applies an update whole, or refuses it and changes nothing but the highest epoch seen. */
  synchronized Outcome apply(LeaseUpdate update) {
    String reason = fence(update.startId, update.epoch);
    if (reason != null) {
      return new Outcome(refuse(reason), null);
    }
    if (update.isSignOfLife() && update.seq == (seq == NO_SEQ ? 0 : seq)) {
      return new Outcome(accept(), new Changes());
    }
    if (!update.isFull && (seq == NO_SEQ || update.seq != seq + 1)) {
      return new Outcome(refuse(LeaseReply.GAP), null);
    }
    Changes changes = new Changes();
    Map<String, GateLease> next = next(update, changes);
    if (next.size() > leasesMax) {
      return new Outcome(refuse(LeaseReply.TOO_LARGE), null);
    }
    leases = next;
    allowed = tableOf(next);
    seq = update.seq;
    hasFull = hasFull || update.isFull;
    isObserving = update.isFull ? update.isObserving : isObserving;
    return new Outcome(accept(), changes);
  }

  /**
   * Null where a sender with this start id and epoch may speak. A leader sends nothing before it holds its epoch in the
   * store, so even a message that is refused later on raises the fence.
   */
  synchronized String fence(String senderStartId, long senderEpoch) {
    if (!startId.equals(senderStartId)) {
      return LeaseReply.WRONG_START;
    }
    if (senderEpoch < epoch) {
      return LeaseReply.OLD_EPOCH;
    }
    if (senderEpoch > epoch) {
      epoch = senderEpoch;
      seq = NO_SEQ;
    }
    return null;
  }

  synchronized LeaseReply accept() {
    return new LeaseReply(true, "", epoch, startId, seq == NO_SEQ ? 0 : seq);
  }

  private Map<String, GateLease> next(LeaseUpdate update, Changes changes) {
    Map<String, GateLease> next = update.isFull ? new HashMap<>() : new HashMap<>(leases);
    for (GateLease lease : update.leases) {
      next.put(lease.leaseId, lease);
      if (!lease.isSameAs(leases.get(lease.leaseId))) {
        changes.granted.add(lease);
      }
    }
    for (LeaseUpdate.Drain drain : update.drains) {
      for (String leaseId : drain.leaseIds) {
        GateLease lease = next.get(leaseId);
        // A lease that is gone already has nothing left to drain.
        if (lease != null) {
          GateLease draining = lease.draining();
          next.put(leaseId, draining);
          changes.drained.put(draining, drain.killInMs);
        }
      }
    }
    for (String leaseId : update.removedLeaseIds) {
      GateLease removed = next.remove(leaseId);
      if (removed != null) {
        changes.removed.add(removed);
      }
    }
    if (update.isFull) {
      for (GateLease old : leases.values()) {
        if (!next.containsKey(old.leaseId)) {
          changes.removed.add(old);
        }
      }
    }
    return next;
  }

  private static Map<ApplicationId, Map<String, Integer>> tableOf(Map<String, GateLease> leases) {
    Map<ApplicationId, Map<String, Integer>> table = new HashMap<>();
    for (GateLease lease : leases.values()) {
      if (!lease.isDraining) {
        table.computeIfAbsent(lease.applicationId, id -> new HashMap<>()).merge(lease.node, lease.gpus, Integer::sum);
      }
    }
    return table;
  }
}
