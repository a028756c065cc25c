package org.themis.yarn;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;

/**
 * Live containers with GPUs, and GPUs in use by application and node. Kept from the scheduler's container events: the
 * gate asks for each candidate node, and copying a node's container list there doubled the cost of a heartbeat.
 * Safe for any thread; nothing here waits or locks.
 */
class GpuLedger {
  /** A live container that holds GPUs. */
  static final class Held {
    final ContainerId containerId;
    final ApplicationId applicationId;
    final String node;
    final boolean isAm;
    final long createdMs;
    /** Null only in tests of what needs no ResourceManager. */
    final RMContainer container;
    volatile int gpus;
    /** What of it the counters hold; ENDED once it was taken out of them. */
    private final AtomicInteger counted;

    Held(ContainerId containerId, String node, int gpus, boolean isAm, long createdMs, RMContainer container) {
      this.containerId = containerId;
      this.applicationId = containerId.getApplicationAttemptId().getApplicationId();
      this.node = node;
      this.gpus = gpus;
      this.counted = new AtomicInteger(gpus);
      this.isAm = isAm;
      this.createdMs = createdMs;
      this.container = container;
    }
  }

  private static final int ENDED = -1;

  private final ConcurrentHashMap<ContainerId, Held> held = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<ApplicationId, ConcurrentHashMap<String, AtomicInteger>> used =
      new ConcurrentHashMap<>();

  /** GPUs of an application's containers on a node, its AM's own left out, those being committed included. */
  int used(ApplicationId application, String node) {
    Map<String, AtomicInteger> nodes = used.get(application);
    AtomicInteger gpus = nodes == null ? null : nodes.get(node);
    return gpus == null ? 0 : gpus.get();
  }

  /**
   * Counts GPUs for a proposal about to be committed, so that two committing threads cannot share one lease.
   *
   * @return false, and nothing counted, where they do not fit {@code allowed}
   */
  boolean reserve(ApplicationId application, String node, int gpus, int allowed) {
    AtomicInteger counter = counter(application, node);
    while (true) {
      int now = counter.get();
      // Below 0 somebody has miscounted: in doubt the gate is shut, until the next recount.
      if (now < 0 || now + gpus > allowed) {
        return false;
      }
      if (counter.compareAndSet(now, now + gpus)) {
        return true;
      }
    }
  }

  /** Takes back what {@link #reserve} counted. */
  void cancel(ApplicationId application, String node, int gpus) {
    counter(application, node).addAndGet(-gpus);
  }

  /** Books a container; its GPUs are counted already where {@code isReserved}. A second call for it does nothing. */
  void add(Held container, boolean isReserved) {
    boolean isNew = held.putIfAbsent(container.containerId, container) == null;
    if (!container.isAm && isNew != isReserved) {
      count(container, isNew ? container.gpus : -container.gpus);
    }
  }

  /** Ends a container's booking. Null where it holds no GPUs or is ended already. */
  Held remove(ContainerId containerId) {
    Held container = held.remove(containerId);
    if (container != null) {
      int gpus = container.counted.getAndSet(ENDED);
      if (!container.isAm && gpus != ENDED) {
        count(container, -gpus);
      }
    }
    return container;
  }

  /** Follows a container whose size YARN changed. True where it did. */
  boolean resize(Held container, int gpus) {
    int before = container.counted.get();
    if (before == gpus || before == ENDED || !container.counted.compareAndSet(before, gpus)) {
      return false;
    }
    if (!container.isAm) {
      count(container, gpus - before);
    }
    container.gpus = gpus;
    return true;
  }

  Held get(ContainerId containerId) {
    return held.get(containerId);
  }

  /** All live GPU containers; a copy. */
  List<Held> all() {
    return new ArrayList<>(held.values());
  }

  /** Containers that leases are counted for (all but AMs), by application and node; a copy. */
  Map<ApplicationId, Map<String, List<Held>>> byPlace() {
    Map<ApplicationId, Map<String, List<Held>>> places = new HashMap<>();
    for (Held container : held.values()) {
      if (!container.isAm) {
        places.computeIfAbsent(container.applicationId, id -> new HashMap<>())
            .computeIfAbsent(container.node, node -> new ArrayList<>()).add(container);
      }
    }
    return places;
  }

  /** Drops the counters of applications that are gone and hold nothing. */
  void forget(Predicate<ApplicationId> isGone) {
    used.entrySet().removeIf(app -> isGone.test(app.getKey())
        && app.getValue().values().stream().allMatch(gpus -> gpus.get() <= 0));
  }

  /** GPUs counted as in use, everywhere: those of {@link #all} but AMs, and those being committed. */
  int usedInAll() {
    return used.values().stream().flatMap(nodes -> nodes.values().stream()).mapToInt(AtomicInteger::get).sum();
  }

  /**
   * Sets each counter to what the live containers say, after a failure that may have left it wrong. Where placements
   * are on their way, or a counter moves meanwhile, it is left for the next time.
   *
   * @return true where all counters are right now
   */
  boolean recount(Stamps stamps) {
    boolean isRight = true;
    for (Map.Entry<ApplicationId, ConcurrentHashMap<String, AtomicInteger>> app : used.entrySet()) {
      for (Map.Entry<String, AtomicInteger> node : app.getValue().entrySet()) {
        int counted = node.getValue().get();
        long begun = stamps.begun();
        int live = 0;
        for (Held container : held.values()) {
          if (!container.isAm && container.applicationId.equals(app.getKey()) && container.node.equals(node.getKey())) {
            live += container.gpus;
          }
        }
        isRight &= counted == live
            || !stamps.hasFlights() && stamps.begun() == begun && node.getValue().compareAndSet(counted, live);
      }
    }
    return isRight;
  }

  private void count(Held container, int gpus) {
    counter(container.applicationId, container.node).addAndGet(gpus);
  }

  private AtomicInteger counter(ApplicationId application, String node) {
    ConcurrentHashMap<String, AtomicInteger> nodes = used.get(application);
    if (nodes == null) {
      nodes = used.computeIfAbsent(application, id -> new ConcurrentHashMap<>());
    }
    AtomicInteger gpus = nodes.get(node);
    return gpus != null ? gpus : nodes.computeIfAbsent(node, name -> new AtomicInteger());
  }
}
