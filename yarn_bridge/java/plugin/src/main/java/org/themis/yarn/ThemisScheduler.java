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

  private Settings settings;
  private Gate gate;
  private Outbox outbox;
  private Tracker tracker;
  private DrainTimer timer;
  private EntryPoint entryPoint;
  private Gateway gateway;
  private long progressDueMs;
  private Map<ApplicationId, Float> toldProgress = new HashMap<>();

  @Override
  public void serviceInit(Configuration conf) throws Exception {
    settings = Settings.from(conf);
    outbox = new Outbox(settings.outboxMax());
    gate = new Gate(new LeaseBook(Settings.LEASES_MAX), new GpuLedger(),
        new Fallback(settings.fallback(), settings.fallbackAfterMs()));
    tracker = new Tracker(this, gate, outbox);
    super.serviceInit(conf);
  }

  @Override
  public void serviceStart() throws Exception {
    Guard.run("serviceStart", () -> {
      String startId = UUID.randomUUID().toString();
      gate.book.start(startId);
      gate.fallback.start(monotonicMs());
      timer = new DrainTimer(gate, new Orders(), ThemisScheduler::monotonicMs);
      entryPoint = new EntryPoint(startId, gate, outbox, new StateReader(this, gate.ledger), timer, this);
      timer.start();
      gateway = Gateway.open(settings.gatewayDir(), startId, entryPoint);
    });
    super.serviceStart();
  }

  @Override
  public void serviceStop() throws Exception {
    Guard.run("serviceStop", () -> {
      if (gateway != null) {
        gateway.close();
      }
      if (timer != null) {
        timer.stop();
      }
      if (outbox != null) {
        outbox.close();
      }
    });
    super.serviceStop();
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

  private static long monotonicMs() {
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

  private void note(SchedulerEvent event, String leavingNode) {
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
  private void carryOut(GateEvent event) {
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
    Tracker.Ticket ticket = tracker.before(request);
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
      Guard.run("tryCommit", () -> tracker.after(ticket, request, isCommitted));
    }
  }

  /** Takes back what CapacityScheduler counted for the proposal, as its own refusal does. */
  private void refuse(ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request) {
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
    if (!gate.fallback.mode().isOpen()) {
      refuseGpus(attempt, schedulingRequests);
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
  private static void refuseGpus(ApplicationAttemptId attempt, List<SchedulingRequest> requests) {
    if (requests == null) {
      return;
    }
    for (SchedulingRequest request : requests) {
      if (request.getResourceSizing() != null && Gpus.of(request.getResourceSizing().getResources()) > 0) {
        throw new SchedulerInvalidResoureRequestException("Themis: " + attempt + " asks for GPUs by a"
            + " SchedulingRequest (placement constraints), which leases do not cover; ask by ResourceRequest");
      }
    }
  }

  @Override
  protected void completedContainerInternal(RMContainer container, ContainerStatus status,
      RMContainerEventType event) {
    boolean wasReserved = container.getState() == RMContainerState.RESERVED;
    super.completedContainerInternal(container, status, event);
    Guard.run("completedContainer", () -> {
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
    Guard.run("recoverContainers", () -> tracker.recovered(reports, node.getNodeID()));
  }

  @Override
  public String moveApplication(ApplicationId id, String queue) throws YarnException {
    String moved = super.moveApplication(id, queue);
    Guard.run("moveApplication", () -> tracker.noteApplication(id));
    return moved;
  }

  private void noteProgress(long nowMs) {
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
      gate.fallback.tick(nowMs);
      tracker.sweep();
      for (RMContainer uncovered : tracker.uncoveredReservations()) {
        send(GateEvent.unreserve(uncovered));
      }
      noteProgress(nowMs);
    }
  }
}
