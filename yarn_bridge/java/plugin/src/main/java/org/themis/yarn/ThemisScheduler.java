package org.themis.yarn;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.ContainerStatus;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.api.records.SchedulingRequest;
import org.apache.hadoop.yarn.event.Event;
import org.apache.hadoop.yarn.exceptions.SchedulerInvalidResoureRequestException;
import org.apache.hadoop.yarn.exceptions.YarnException;
import org.apache.hadoop.yarn.server.api.protocolrecords.NMContainerStatus;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainerEventType;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainerState;
import org.apache.hadoop.yarn.server.resourcemanager.rmnode.RMNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.Allocation;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.ContainerUpdates;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerUtils;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ApplicationSchedulingConfig;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ContainerAllocationProposal;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ResourceCommitRequest;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.SchedulerContainer;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerApp;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAttemptAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAttemptRemovedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppRemovedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.ContainerPreemptEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.NodeAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.NodeRemovedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.NodeResourceUpdateSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEventType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * YARN's CapacityScheduler, with GPU containers gated by leases.
 *
 * <p>Theory of operation. Queues, limits, CPU and memory stay CapacityScheduler's. A GPU ask is tried only on nodes
 * where its application has an unused lease ({@link GatedPlacementAllocator}), and every proposal is checked again when
 * it is committed ({@link #tryCommit}), which is the authority: all paths lead through it. The ResourceManager makes a
 * new object for each activation; a standby's is never started, so the gateway, the timer and the start id begin in
 * {@link #serviceStart}, while applications and containers may be recovered before that.
 *
 * <p>Nothing here blocks or throws on the ResourceManager's threads: our own work runs under {@link Guard}.
 */
public class ThemisScheduler extends CapacityScheduler {
  private static final Logger LOG = LoggerFactory.getLogger(ThemisScheduler.class);
  static final long PROGRESS_EVERY_MS = 5_000;
  static final float PROGRESS_STEP = 0.01f;
  /** So often the books are held against YARN's own lists, on our thread; and so often while they are in doubt. */
  static final long REBOOK_MS = 60_000;
  static final long REBOOK_IN_DOUBT_MS = 2_000;

  private Settings settings;
  private Gate gate;
  private Outbox outbox;
  private Tracker tracker;
  private DrainTimer timer;
  private EntryPoint entryPoint;
  private GatewayKeeper gateway;
  private long rebookedMs;
  private long progressDueMs;
  private Map<ApplicationId, Float> toldProgress = new HashMap<>();

  @Override
  public void serviceInit(Configuration conf) throws Exception {
    settings = Settings.from(conf);
    Parts parts = parts();
    outbox = parts.outbox(settings);
    gate = parts.gate(settings);
    tracker = parts.tracker(this, gate, outbox);
    super.serviceInit(conf);
  }

  @Override
  public void serviceStart() throws Exception {
    Guard.run("serviceStart", () -> {
      String startId = UUID.randomUUID().toString();
      gate.book.start(startId);
      gate.fallback.start(monotonicMs());
      Parts parts = parts();
      timer = parts.timer(gate, new Orders());
      entryPoint = parts.entryPoint(startId, this, outbox, timer);
      timer.start();
      gateway = new GatewayKeeper(() -> parts.gateway(settings, startId, entryPoint));
      gateway.start();
    });
    super.serviceStart();
  }

  @Override
  public void serviceStop() throws Exception {
    Guard.run("serviceStop", () -> {
      if (timer != null) {
        timer.stop();
      }
      if (outbox != null) {
        outbox.close();
      }
      if (gateway != null) {
        gateway.stop();
      }
    });
    super.serviceStop();
  }

  Parts parts() {
    return new Parts();
  }

  /** For our allocators. */
  Gate gate() {
    return gate;
  }

  /** What the gateway serves; null before {@link #serviceStart}. */
  EntryPoint entryPoint() {
    return entryPoint;
  }

  boolean knows(ApplicationId id) {
    return getSchedulerApplications().containsKey(id);
  }

  static long monotonicMs() {
    return System.nanoTime() / 1_000_000;
  }

  @Override
  public void handle(SchedulerEvent event) {
    if (event instanceof GateEvent) {
      Guard.run("handle", () -> carryOut((GateEvent) event));
      return;
    }
    String leaving = event.getType() == SchedulerEventType.NODE_REMOVED ? leavingNode(event) : null;
    if (event.getType() == SchedulerEventType.APP_ADDED) {
      Guard.run("handle", () -> gateApplication(((AppAddedSchedulerEvent) event).getApplicationId()));
    }
    super.handle(event);
    if (event.getType() != SchedulerEventType.NODE_UPDATE) {
      Guard.run("handle", () -> note(event, leaving));
    }
  }

  private String leavingNode(SchedulerEvent event) {
    try {
      SchedulerNode node = getNode(((NodeRemovedSchedulerEvent) event).getRemovedRMNode().getNodeID());
      return node == null ? null : node.getNodeName();
    } catch (Throwable t) {
      Guard.caught("handle", t);
      return null;
    }
  }

  /** Its attempts' asks will be placed by our allocator: YARN reads this map when an attempt is added. */
  private void gateApplication(ApplicationId id) {
    RMApp app = rmContext.getRMApps().get(id);
    if (app != null) {
      app.getApplicationSchedulingEnvs().put(ApplicationSchedulingConfig.ENV_APPLICATION_PLACEMENT_TYPE_CLASS,
          GatedPlacementAllocator.class.getName());
    }
  }

  void note(SchedulerEvent event, String leavingNode) {
    switch (event.getType()) {
      case NODE_ADDED:
        tracker.noteNode(((NodeAddedSchedulerEvent) event).getAddedRMNode().getNodeID());
        break;
      case NODE_RESOURCE_UPDATE:
        tracker.noteNode(((NodeResourceUpdateSchedulerEvent) event).getRMNode().getNodeID());
        break;
      case NODE_REMOVED:
        if (leavingNode != null) {
          outbox.note(Outbox.Kind.NODE, leavingNode);
        }
        break;
      case APP_ADDED:
        tracker.noteApplication(((AppAddedSchedulerEvent) event).getApplicationId());
        break;
      case APP_ATTEMPT_ADDED:
        tracker.noteApplication(
            ((AppAttemptAddedSchedulerEvent) event).getApplicationAttemptId().getApplicationId());
        break;
      case APP_ATTEMPT_REMOVED:
        tracker.noteApplication(
            ((AppAttemptRemovedSchedulerEvent) event).getApplicationAttemptID().getApplicationId());
        break;
      case APP_REMOVED:
        AppRemovedSchedulerEvent removed = (AppRemovedSchedulerEvent) event;
        outbox.note(Outbox.Kind.APPLICATION, removed.getApplicationID().toString(),
            new StateReader.EndedApplication(removed.getFinalState(), System.currentTimeMillis()));
        break;
      default:
        break;
    }
  }

  /** On the scheduler's thread: looks again, for leases may have come since the order was sent. */
  void carryOut(GateEvent event) {
    RMContainer container = event.getContainer();
    if (!event.isKill()) {
      if (tracker.isReserved(container) && !tracker.isCovered(container)) {
        LOG.info("Themis ends a reservation without a lease: container={}", container.getContainerId());
        killReservedContainer(container);
      }
      return;
    }
    GpuLedger.Held held = gate.ledger.get(container.getContainerId());
    if (held == null || gate.excess(held.applicationId, held.node) == 0) {
      return;
    }
    gate.kills.incrementAndGet();
    writeLock.lock();
    try {
      completedContainer(container,
          SchedulerUtils.createPreemptedContainerStatus(container.getContainerId(), event.reason),
          RMContainerEventType.KILL);
    } finally {
      writeLock.unlock();
    }
  }

  @Override
  @SuppressWarnings({"rawtypes", "unchecked"})
  public boolean tryCommit(Resource cluster, ResourceCommitRequest r, boolean updatePending) {
    ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request = r;
    Tracker.Ticket ticket = admit(request);
    if (!ticket.isAdmitted) {
      Guard.run("tryCommit", () -> refuse(request));
      return false;
    }
    boolean isDone = false;
    try {
      isDone = super.tryCommit(cluster, r, updatePending);
      return isDone;
    } finally {
      boolean isCommitted = isDone;
      book("tryCommit", () -> tracker.after(ticket, request, isCommitted));
    }
  }

  /** The gate's word. In doubt it is no for what has GPUs, and for all else none is needed. */
  private Tracker.Ticket admit(ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request) {
    try {
      Tracker.Ticket ticket = tracker.before(request);
      if (ticket != null) {
        return ticket;
      }
    } catch (Throwable t) {
      Guard.caught("tryCommit", t);
    }
    tracker.doubt();
    try {
      return Tracker.gpusOf(request) == 0 ? Tracker.Ticket.PLAIN : Tracker.Ticket.REFUSED;
    } catch (Throwable t) {
      Guard.caught("tryCommit", t);
      return Tracker.Ticket.PLAIN; // a proposal that cannot be read is CapacityScheduler's to refuse
    }
  }

  /** A booking; where it fails the books are read anew soon. */
  private void book(String place, Guard.Work work) {
    if (!Guard.run(place, work)) {
      tracker.doubt();
    }
  }

  /** Takes back what CapacityScheduler counted for the proposal, as its own refusal does. */
  private void refuse(ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request) {
    SchedulerContainer<FiCaSchedulerApp, FiCaSchedulerNode> refused =
        request.getFirstAllocatedOrReservedContainer().getAllocatedOrReservedContainer();
    gate.holdOffs.add(refused.getSchedulerApplicationAttempt().getApplicationId(),
        refused.getSchedulerNode().getNodeName());
    if (request.getContainersToAllocate() == null || request.getContainersToAllocate().isEmpty()) {
      return;
    }
    ContainerAllocationProposal<FiCaSchedulerApp, FiCaSchedulerNode> proposal =
        request.getFirstAllocatedOrReservedContainer();
    ApplicationAttemptId proposer =
        proposal.getAllocatedOrReservedContainer().getSchedulerApplicationAttempt().getApplicationAttemptId();
    FiCaSchedulerApp current = getApplicationAttempt(proposer);
    if (current != null && proposer.equals(current.getApplicationAttemptId())) {
      current.decUnconfirmedRes(request.getTotalAllocatedResource());
    }
  }

  @Override
  public Allocation allocate(ApplicationAttemptId attempt, List<ResourceRequest> ask,
      List<SchedulingRequest> schedulingRequests, List<ContainerId> release, List<String> blacklistAdditions,
      List<String> blacklistRemovals, ContainerUpdates updateRequests) {
    String refusal = refusalOf(attempt, schedulingRequests);
    if (refusal != null) {
      throw new SchedulerInvalidResoureRequestException(refusal);
    }
    Allocation allocation = super.allocate(attempt, ask, schedulingRequests, release, blacklistAdditions,
        blacklistRemovals, updateRequests);
    if (ask != null && !ask.isEmpty()) {
      Guard.run("allocate", () -> tracker.noteApplication(attempt.getApplicationId()));
    }
    return allocation;
  }

  /**
   * YARN places SchedulingRequests by an allocator of its own, so the gate could only reject them at commit; each
   * rejection wastes a node's heartbeat for every application. The AM hears it as a YarnException of its allocate call.
   */
  private String refusalOf(ApplicationAttemptId attempt, List<SchedulingRequest> requests) {
    if (requests == null || requests.isEmpty()) {
      return null;
    }
    try {
      boolean hasGpus = requests.stream().anyMatch(request -> request.getResourceSizing() != null
          && Gpus.of(request.getResourceSizing().getResources()) > 0);
      if (hasGpus && !gate.fallback.mode().isOpen()) {
        return "Themis: " + attempt + " asks for GPUs by a SchedulingRequest (placement constraints), which leases do"
            + " not cover; ask by ResourceRequest";
      }
    } catch (Throwable t) {
      Guard.caught("allocate", t); // the commit has the last word anyway
    }
    return null;
  }

  @Override
  protected void completedContainerInternal(RMContainer container, ContainerStatus status,
      RMContainerEventType event) {
    boolean wasReserved = container.getState() == RMContainerState.RESERVED;
    super.completedContainerInternal(container, status, event);
    book("completedContainer", () -> {
      if (wasReserved) {
        tracker.reservationEnded(container);
      } else {
        tracker.ended(container, status.getExitStatus());
      }
    });
  }

  @Override
  protected void containerLaunchedOnNode(ContainerId id, SchedulerNode node) {
    super.containerLaunchedOnNode(id, node);
    Guard.run("containerLaunched", () -> tracker.launched(id));
  }

  @Override
  public void recoverContainersOnNode(List<NMContainerStatus> reports, RMNode node) {
    super.recoverContainersOnNode(reports, node);
    book("recoverContainers", () -> tracker.recovered(reports, node.getNodeID()));
  }

  @Override
  public String moveApplication(ApplicationId id, String queue) throws YarnException {
    String moved = super.moveApplication(id, queue);
    Guard.run("moveApplication", () -> tracker.noteApplication(id));
    return moved;
  }

  private void rebook() {
    long nowMs = monotonicMs(); // its own look at the clock: it is there for when things are not as they should be
    if (nowMs - rebookedMs >= (tracker.isInDoubt() ? REBOOK_IN_DOUBT_MS : REBOOK_MS)) {
      rebookedMs = nowMs;
      tracker.rebook();
    }
  }

  void noteProgress(long nowMs) {
    if (nowMs < progressDueMs) {
      return;
    }
    progressDueMs = nowMs + PROGRESS_EVERY_MS;
    Map<ApplicationId, Float> told = new HashMap<>();
    for (ApplicationId id : getSchedulerApplications().keySet()) {
      RMApp app = rmContext.getRMApps().get(id);
      float progress = app == null ? 0 : app.getProgress();
      float last = toldProgress.getOrDefault(id, 0f);
      if (Math.abs(progress - last) >= PROGRESS_STEP) {
        tracker.noteApplication(id);
        last = progress;
      }
      told.put(id, last);
    }
    toldProgress = told;
  }

  @SuppressWarnings("unchecked")
  private void send(Event<?> event) {
    rmContext.getDispatcher().getEventHandler().handle(event);
  }

  /** The drain timer's arms: everything goes through the ResourceManager's dispatcher. */
  private final class Orders implements DrainTimer.Actions {
    @Override
    public void markForPreemption(GpuLedger.Held held) {
      send(new ContainerPreemptEvent(held.container.getApplicationAttemptId(), held.container,
          SchedulerEventType.MARK_CONTAINER_FOR_PREEMPTION));
    }

    @Override
    public void kill(GpuLedger.Held held, String reason) {
      send(GateEvent.kill(held.container, reason));
    }

    @Override
    public void tick(long nowMs) {
      // Each by itself: what fails takes nothing else along.
      Guard.run("tickFallback", () -> gate.fallback.tick(nowMs));
      Guard.run("tickSweep", () -> tracker.sweep());
      Guard.run("tickReservations", () -> {
        for (RMContainer uncovered : tracker.uncoveredReservations()) {
          send(GateEvent.unreserve(uncovered));
        }
      });
      Guard.run("tickProgress", () -> noteProgress(nowMs));
      Guard.run("tickRebook", ThemisScheduler.this::rebook);
    }
  }
}
