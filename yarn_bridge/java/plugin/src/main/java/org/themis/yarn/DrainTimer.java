package org.themis.yarn;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.LongSupplier;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Carries drains out, on a thread of its own: marks containers for preemption when a drain comes, and at its end asks
 * for the kill of what still does not fit, never of more GPUs than were drained. It only sends events; the scheduler's
 * thread does the rest.
 */
class DrainTimer implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(DrainTimer.class);
  static final long TICK_MS = 1_000;
  /** A drain at its end whose container is just being committed looks again this often, and for so long. */
  static final long RETRY_MS = 200;
  static final long RETRY_FOR_MS = 10_000;

  /** What the timer asks of the ResourceManager; each call only sends an event. */
  interface Actions {
    void markForPreemption(GpuLedger.Held held);

    void kill(GpuLedger.Held held, String reason);

    /** Housekeeping between drains: fall-back, reservations, containers that ended unseen. */
    void tick(long nowMs);
  }

  private static final class Pending {
    final GateLease lease;
    final long dueMs;
    int gpusLeft;

    Pending(GateLease lease, long dueMs) {
      this.lease = lease;
      this.dueMs = dueMs;
      this.gpusLeft = lease.gpus;
    }
  }

  private final Gate gate;
  private final Actions actions;
  private final LongSupplier clockMs;
  private final Map<String, Pending> pending = new HashMap<>();
  private final Set<ContainerId> marked = new HashSet<>();
  private final Map<ContainerId, Long> killing = new HashMap<>();
  /** Leases whose drain is over, so that one sent twice takes nothing twice; only leases still in the book. */
  private final Set<String> spent = new HashSet<>();
  private boolean isWoken;
  private Thread thread;
  private volatile boolean isStopped;

  DrainTimer(Gate gate, Actions actions, LongSupplier clockMs) {
    this.gate = gate;
    this.actions = actions;
    this.clockMs = clockMs;
  }

  void start() {
    thread = new Thread(this, "themis-drain-timer");
    thread.setDaemon(true);
    thread.start();
  }

  void stop() {
    isStopped = true;
    if (thread != null) {
      thread.interrupt(); // without its lock: who stops us is the ResourceManager
    }
  }

  synchronized void wake() {
    isWoken = true;
    notifyAll();
  }

  /** Takes over an accepted update: new ends for drained leases, none for leases that are whole again. */
  synchronized void accept(LeaseBook.Changes changes) {
    long nowMs = clockMs.getAsLong();
    for (GateLease lease : changes.granted) {
      if (!lease.isDraining) {
        pending.remove(lease.leaseId);
        spent.remove(lease.leaseId);
      }
    }
    for (Map.Entry<GateLease, Long> drain : changes.drained.entrySet()) {
      if (!spent.contains(drain.getKey().leaseId)) {
        pending.put(drain.getKey().leaseId, new Pending(drain.getKey(), nowMs + drain.getValue()));
      }
    }
    for (GateLease lease : changes.removed) {
      spent.remove(lease.leaseId);
    }
    wake();
  }

  @Override
  public void run() {
    while (!isStopped) {
      Guard.run("DrainTimer", () -> step(clockMs.getAsLong()));
      try {
        pause();
      } catch (InterruptedException e) {
        return;
      }
    }
  }

  private synchronized void pause() throws InterruptedException {
    long nowMs = clockMs.getAsLong();
    long waitMs = TICK_MS;
    for (Pending drain : pending.values()) {
      waitMs = Math.min(waitMs, drain.dueMs > nowMs ? drain.dueMs - nowMs : RETRY_MS);
    }
    if (!isWoken && !isStopped) {
      wait(waitMs);
    }
    isWoken = false;
  }

  /** One round: housekeeping, then all drains by application and node. */
  void step(long nowMs) {
    Guard.run("tick", () -> actions.tick(nowMs));
    synchronized (this) {
      killing.entrySet().removeIf(kill -> gate.ledger.get(kill.getKey()) == null || kill.getValue() < nowMs);
      marked.removeIf(id -> gate.ledger.get(id) == null);
      if (pending.isEmpty()) {
        return;
      }
      Map<ApplicationId, Map<String, List<GpuLedger.Held>>> live = gate.ledger.byPlace();
      for (List<Pending> place : places()) {
        GateLease lease = place.get(0).lease;
        List<GpuLedger.Held> here = live.getOrDefault(lease.applicationId, Collections.emptyMap())
            .getOrDefault(lease.node, Collections.emptyList());
        mark(place, here);
        killDue(place, here, nowMs);
      }
    }
  }

  private List<List<Pending>> places() {
    Map<ApplicationId, Map<String, List<Pending>>> byPlace = new HashMap<>();
    for (Pending drain : pending.values()) {
      byPlace.computeIfAbsent(drain.lease.applicationId, id -> new HashMap<>())
          .computeIfAbsent(drain.lease.node, node -> new ArrayList<>()).add(drain);
    }
    List<List<Pending>> places = new ArrayList<>();
    byPlace.values().forEach(nodes -> places.addAll(nodes.values()));
    return places;
  }

  private void mark(List<Pending> place, List<GpuLedger.Held> here) {
    GateLease lease = place.get(0).lease;
    int drained = place.stream().mapToInt(drain -> drain.gpusLeft).sum();
    int gpus = Math.min(drained, gate.excess(lease.applicationId, lease.node));
    for (GpuLedger.Held held : victims(here, gpus)) {
      if (marked.add(held.containerId)) {
        LOG.info("Themis asks for preemption: container={} application={} node={} gpus={}", held.containerId,
            held.applicationId, held.node, held.gpus);
        gate.preemptMarks.incrementAndGet();
        actions.markForPreemption(held);
      }
    }
  }

  private void killDue(List<Pending> place, List<GpuLedger.Held> here, long nowMs) {
    place.removeIf(drain -> drain.dueMs > nowMs);
    if (place.isEmpty()) {
      return;
    }
    GateLease lease = place.get(0).lease;
    int drained = place.stream().mapToInt(drain -> drain.gpusLeft).sum();
    int gone = here.stream().filter(held -> killing.containsKey(held.containerId)).mapToInt(held -> held.gpus).sum();
    int gpus = Math.min(drained, gate.excess(lease.applicationId, lease.node) - gone);
    int killed = 0;
    for (GpuLedger.Held held : victims(here, gpus)) {
      LOG.info("Themis takes a container whose lease has ended: container={} application={} node={} gpus={}",
          held.containerId, held.applicationId, held.node, held.gpus);
      killing.put(held.containerId, nowMs + RETRY_FOR_MS);
      killed += held.gpus;
      actions.kill(held, "Container preempted by scheduler: its GPU lease ended");
    }
    settle(place, killed, gpus > killed, nowMs);
  }

  /** A drain is over once it took its GPUs, nothing was too much, or it looked long enough for what was. */
  private void settle(List<Pending> place, int killedGpus, boolean isShort, long nowMs) {
    int left = killedGpus;
    for (Pending drain : place) {
      int share = Math.min(left, drain.gpusLeft);
      drain.gpusLeft -= share;
      left -= share;
      if (!isShort || drain.gpusLeft == 0 || drain.dueMs + RETRY_FOR_MS < nowMs) {
        pending.remove(drain.lease.leaseId);
        spent.add(drain.lease.leaseId);
      }
    }
  }

  private List<GpuLedger.Held> victims(List<GpuLedger.Held> here, int gpus) {
    List<GpuLedger.Held> live = new ArrayList<>(here);
    live.removeIf(held -> killing.containsKey(held.containerId) || gate.ledger.get(held.containerId) != held);
    return DrainPlan.victims(live, marked, gpus);
  }
}
