package org.themis.yarn;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerExitStatus;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.ContainerState;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.server.api.protocolrecords.NMContainerStatus;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainerState;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerUtils;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ContainerAllocationProposal;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ResourceCommitRequest;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.SchedulerContainer;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerApp;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerNode;

/**
 * Turns what the scheduler does into the ledger's bookings and the outbox's changes. Most calls come on the scheduler's
 * threads; {@link #sweep} comes on ours and finds what YARN ended or resized past its own hooks.
 */
class Tracker {
  /** What {@link #before} found out about a proposal, for {@link #after}. A value. */
  static final class Ticket {
    static final Ticket PLAIN = new Ticket(0, false, false, true, Stamps.NO_FLIGHT);
    static final Ticket REFUSED = new Ticket(0, false, false, false, Stamps.NO_FLIGHT);
    final int gpus;
    final boolean isAm;
    /** The gate counted the GPUs already. */
    final boolean isCounted;
    final boolean isAdmitted;
    final long flight;

    Ticket(int gpus, boolean isAm, boolean isCounted, boolean isAdmitted, long flight) {
      this.gpus = gpus;
      this.isAm = isAm;
      this.isCounted = isCounted;
      this.isAdmitted = isAdmitted;
      this.flight = flight;
    }
  }

  private final ThemisScheduler scheduler;
  private final Gate gate;
  private final Outbox outbox;
  private final Map<ContainerId, RMContainer> reserved = new ConcurrentHashMap<>();
  /** Applications whose asks YARN may have raised again just after a container's end was noted. */
  private final Set<ApplicationId> recheck = ConcurrentHashMap.newKeySet();
  /** A booking failed, so the books may be wrong until they are read anew. */
  private volatile boolean isInDoubt;

  Tracker(ThemisScheduler scheduler, Gate gate, Outbox outbox) {
    this.scheduler = scheduler;
    this.gate = gate;
    this.outbox = outbox;
  }

  void noteApplication(ApplicationId id) {
    outbox.note(Outbox.Kind.APPLICATION, id.toString());
  }

  void noteNode(NodeId id) {
    SchedulerNode node = id == null ? null : scheduler.getNode(id);
    if (node != null) {
      outbox.note(Outbox.Kind.NODE, node.getNodeName());
    }
  }

  private void noteGpuNode(SchedulerNode node) {
    if (node != null && Gpus.of(node.getTotalResource()) > 0) {
      outbox.note(Outbox.Kind.NODE, node.getNodeName());
    }
  }

  /** GPUs that a proposal is for. */
  static int gpusOf(ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request) {
    return request.anythingAllocatedOrReserved()
        ? Gpus.of(request.getFirstAllocatedOrReservedContainer().getAllocatedOrReservedResource()) : 0;
  }

  /** The gate's word on a proposal. */
  Ticket before(ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request) {
    int gpus = gpusOf(request);
    return gpus == 0 ? Ticket.PLAIN
        : admit(request.getFirstAllocatedOrReservedContainer().getAllocatedOrReservedContainer(), gpus);
  }

  private Ticket admit(SchedulerContainer<FiCaSchedulerApp, FiCaSchedulerNode> container, int gpus) {
    FiCaSchedulerApp attempt = container.getSchedulerApplicationAttempt();
    if (attempt.isWaitingForAMContainer()) {
      return new Ticket(gpus, true, false, true, Stamps.NO_FLIGHT);
    }
    ApplicationId app = attempt.getApplicationId();
    String node = container.getSchedulerNode().getNodeName();
    gate.commits.incrementAndGet();
    if (container.isAllocated()) {
      long flight = gate.stamps.begin();
      boolean isReserved = false;
      try {
        isReserved = gate.reserve(app, node, gpus);
        if (isReserved) {
          return new Ticket(gpus, false, true, true, flight);
        }
      } finally {
        if (!isReserved) {
          gate.stamps.land(flight);
        }
      }
      gate.commitRefusals.incrementAndGet();
    } else {
      if (gate.fits(app, node, gpus)) {
        return new Ticket(gpus, false, false, true, Stamps.NO_FLIGHT);
      }
      gate.reservationRefusals.incrementAndGet();
    }
    return Ticket.REFUSED;
  }

  /** Books what a commit did, or takes back what the gate counted for it. */
  void after(Ticket ticket, ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request, boolean isDone) {
    try {
      if (request.anythingAllocatedOrReserved()) {
        ContainerAllocationProposal<FiCaSchedulerApp, FiCaSchedulerNode> proposal =
            request.getFirstAllocatedOrReservedContainer();
        settle(ticket, proposal.getAllocatedOrReservedContainer(), isDone);
        endReleased(proposal.getToRelease());
      }
      endReleased(request.getContainersToRelease());
    } finally {
      gate.stamps.land(ticket.flight);
    }
  }

  private void settle(Ticket ticket, SchedulerContainer<FiCaSchedulerApp, FiCaSchedulerNode> container,
      boolean isDone) {
    FiCaSchedulerNode node = container.getSchedulerNode();
    ApplicationId app = container.getSchedulerApplicationAttempt().getApplicationId();
    if (!isDone) {
      if (ticket.isCounted) {
        gate.ledger.cancel(app, node.getNodeName(), ticket.gpus);
      }
      return;
    }
    noteGpuNode(node);
    if (ticket.gpus == 0) {
      return;
    }
    RMContainer rmContainer = container.getRmContainer();
    ContainerId id = rmContainer.getContainerId();
    noteApplication(app);
    if (!container.isAllocated()) {
      if (!ticket.isAm) {
        reserved.put(id, rmContainer);
      }
      return;
    }
    reserved.remove(id);
    gate.ledger.add(new GpuLedger.Held(id, node.getNodeName(), ticket.gpus, ticket.isAm,
        rmContainer.getCreationTime(), rmContainer), ticket.isCounted);
    outbox.note(Outbox.Kind.CONTAINER, id.toString());
    if (rmContainer.completed()) {
      ended(rmContainer, rmContainer.getContainerExitStatus());
    }
  }

  private void endReleased(List<SchedulerContainer<FiCaSchedulerApp, FiCaSchedulerNode>> released) {
    if (released == null) {
      return;
    }
    for (SchedulerContainer<FiCaSchedulerApp, FiCaSchedulerNode> container : released) {
      RMContainer rmContainer = container == null ? null : container.getRmContainer();
      if (rmContainer != null && rmContainer.completed()) {
        ended(rmContainer, rmContainer.getContainerExitStatus());
      }
    }
  }

  /** A container runs now on its node. */
  void launched(ContainerId id) {
    if (gate.ledger.get(id) != null) {
      outbox.note(Outbox.Kind.CONTAINER, id.toString());
    }
  }

  /** A container ended, whatever the cause. A reservation's end has the id of the container it was for, so not that. */
  void ended(RMContainer rmContainer, int exitStatus) {
    noteGpuNode(scheduler.getNode(rmContainer.getNodeId()));
    GpuLedger.Held held = gate.ledger.remove(rmContainer.getContainerId());
    if (held == null) {
      return;
    }
    gate.holdOffs.remove(held.applicationId, held.node);
    bury(held, exitStatus, rmContainer.getDiagnosticsInfo());
    ContainerId resized = rmContainer.getAllocatedSchedulerKey() == null ? null
        : rmContainer.getAllocatedSchedulerKey().getContainerToUpdate();
    GpuLedger.Held target = resized == null ? null : gate.ledger.get(resized);
    if (target != null) {
      followSize(target);
    }
  }

  void reservationEnded(RMContainer rmContainer) {
    reserved.remove(rmContainer.getContainerId(), rmContainer);
  }

  private void bury(GpuLedger.Held held, int exitStatus, String diagnostics) {
    boolean isAm = held.isAm || held.container.isAMContainer();
    outbox.note(Outbox.Kind.CONTAINER, held.containerId.toString(),
        new StateReader.EndedContainer(held.containerId.toString(), held.applicationId.toString(), held.node,
            held.gpus, isAm, exitStatus, diagnostics, held.createdMs, System.currentTimeMillis()));
    noteApplication(held.applicationId);
    recheck.add(held.applicationId);
  }

  private void followSize(GpuLedger.Held held) {
    if (gate.ledger.resize(held, Gpus.of(held.container.getAllocatedResource()))) {
      outbox.note(Outbox.Kind.CONTAINER, held.containerId.toString());
    }
  }

  /** Books the containers that a node brought back after a restart of the ResourceManager. */
  void recovered(List<NMContainerStatus> reports, NodeId nodeId) {
    SchedulerNode node = scheduler.getNode(nodeId);
    if (reports == null || node == null) {
      return;
    }
    for (NMContainerStatus report : reports) {
      int gpus = Gpus.of(report.getAllocatedResource());
      if (gpus > 0) {
        recovered(report, node.getNodeName(), gpus);
      }
    }
  }

  private void recovered(NMContainerStatus report, String node, int gpus) {
    ContainerId id = report.getContainerId();
    ApplicationId app = id.getApplicationAttemptId().getApplicationId();
    RMContainer rmContainer = scheduler.getRMContainer(id);
    if (rmContainer != null && !rmContainer.completed()) {
      gate.ledger.add(new GpuLedger.Held(id, node, gpus, rmContainer.isAMContainer(),
          rmContainer.getCreationTime(), rmContainer), false);
      outbox.note(Outbox.Kind.CONTAINER, id.toString());
      noteApplication(app);
    } else if (report.getContainerState() == ContainerState.COMPLETE && scheduler.knows(app)) {
      // It ended while no ResourceManager looked; the arbiter still waits to hear how.
      RMApp rmApp = scheduler.getRMContext().getRMApps().get(app);
      boolean isAm = rmApp != null && rmApp.getCurrentAppAttempt() != null
          && rmApp.getCurrentAppAttempt().getMasterContainer() != null
          && rmApp.getCurrentAppAttempt().getMasterContainer().getId().equals(id);
      outbox.note(Outbox.Kind.CONTAINER, id.toString(), new StateReader.EndedContainer(id.toString(), app.toString(),
          node, gpus, isAm, report.getContainerExitStatus(), report.getDiagnostics(),
          report.getCreationTime(), System.currentTimeMillis()));
    }
  }

  void doubt() {
    isInDoubt = true;
  }

  boolean isInDoubt() {
    return isInDoubt;
  }

  /** Puts the books right by YARN's own lists; where that cannot be told while placements are on, doubt stays. */
  void rebook() {
    boolean wasInDoubt = isInDoubt;
    isInDoubt = false;
    for (FiCaSchedulerNode node : scheduler.getAllNodes()) {
      if (Gpus.of(node.getTotalResource()) > 0) {
        node.getCopiedListOfRunningContainers().forEach(container -> bookMissing(container, node.getNodeName()));
      }
    }
    gate.stamps.landLost(System.nanoTime());
    // One of the placements that are on may be lost too.
    if (!gate.ledger.recount(gate.stamps) || wasInDoubt && gate.stamps.hasFlights()) {
      isInDoubt = true;
    }
  }

  private void bookMissing(RMContainer container, String node) {
    ContainerId id = container.getContainerId();
    int gpus = Gpus.of(container.getAllocatedResource());
    if (gpus > 0 && !container.completed() && gate.ledger.get(id) == null) {
      gate.ledger.add(new GpuLedger.Held(id, node, gpus, container.isAMContainer(), container.getCreationTime(),
          container), false);
      outbox.note(Outbox.Kind.CONTAINER, id.toString());
      noteApplication(id.getApplicationAttemptId().getApplicationId());
    }
  }

  /** Reservations that no lease covers any more; YARN does not ask the gate again for a reserved node. */
  List<RMContainer> uncoveredReservations() {
    List<RMContainer> uncovered = new ArrayList<>();
    for (RMContainer rmContainer : reserved.values()) {
      if (!isReserved(rmContainer)) {
        reserved.remove(rmContainer.getContainerId(), rmContainer);
      } else if (!isCovered(rmContainer)) {
        uncovered.add(rmContainer);
      }
    }
    return uncovered;
  }

  boolean isReserved(RMContainer rmContainer) {
    if (rmContainer.getState() != RMContainerState.RESERVED || rmContainer.getReservedNode() == null) {
      return false;
    }
    FiCaSchedulerNode node = scheduler.getNode(rmContainer.getReservedNode());
    return node != null && node.getReservedContainer() == rmContainer;
  }

  boolean isCovered(RMContainer rmContainer) {
    FiCaSchedulerNode node = scheduler.getNode(rmContainer.getReservedNode());
    return node != null && gate.fits(rmContainer.getApplicationAttemptId().getApplicationId(), node.getNodeName(),
        Gpus.of(rmContainer.getReservedResource()));
  }

  /** Finds containers that ended or changed size unseen, and applications to be looked at again. */
  void sweep() {
    for (ApplicationId app : new HashSet<>(recheck)) {
      recheck.remove(app);
      if (scheduler.knows(app)) {
        noteApplication(app);
      }
    }
    for (GpuLedger.Held held : gate.ledger.all()) {
      if (held.container.completed()) {
        ended(held.container, held.container.getContainerExitStatus());
      } else if (!scheduler.knows(held.applicationId)) {
        if (gate.ledger.remove(held.containerId) != null) {
          bury(held, ContainerExitStatus.ABORTED, SchedulerUtils.COMPLETED_APPLICATION);
        }
      } else {
        followSize(held);
      }
    }
    gate.ledger.forget(app -> !scheduler.knows(app));
  }
}
