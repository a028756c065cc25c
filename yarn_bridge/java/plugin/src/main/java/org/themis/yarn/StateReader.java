package org.themis.yarn;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.TreeSet;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerExitStatus;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.FinalApplicationStatus;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.NodeState;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppState;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerApplication;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerUtils;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.PendingAsk;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerApp;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerNode;
import org.apache.hadoop.yarn.server.scheduler.SchedulerRequestKey;

/**
 * Builds reports from the ResourceManager's state at the moment they are asked for, on the gateway's threads. It takes
 * the short read locks of single applications and nodes, never the scheduler's.
 */
class StateReader {
  /** Last state of a container. A value. */
  static final class EndedContainer {
    final String containerId;
    final String applicationId;
    final String node;
    final int gpus;
    final boolean isAm;
    final int exitStatus;
    final String endedBy;
    final long createdMs;
    final long finishedMs;

    EndedContainer(String containerId, String applicationId, String node, int gpus, boolean isAm, int exitStatus,
        String diagnostics, long createdMs, long finishedMs) {
      this.containerId = containerId;
      this.applicationId = applicationId;
      this.node = node;
      this.gpus = gpus;
      this.isAm = isAm;
      this.exitStatus = exitStatus;
      this.endedBy = exitStatus == ContainerExitStatus.ABORTED ? endedBy(diagnostics) : "";
      this.createdMs = createdMs;
      this.finishedMs = finishedMs;
    }

    /** YARN's scheduler has one exit status for all of these, and tells them apart by its text only. */
    private static String endedBy(String diagnostics) {
      switch (diagnostics == null ? "" : diagnostics) {
        case SchedulerUtils.RELEASED_CONTAINER:
          return "MASTER";
        case SchedulerUtils.COMPLETED_APPLICATION:
          return "APPLICATION";
        case SchedulerUtils.LOST_CONTAINER:
          return "NODE";
        case SchedulerUtils.EXPIRED_CONTAINER:
          return "EXPIRY";
        default:
          return "";
      }
    }
  }

  /** What the scheduler was told when an application left it. A value. */
  static final class EndedApplication {
    final RMAppState state;
    final long finishedMs;

    EndedApplication(RMAppState state, long finishedMs) {
      this.state = state;
      this.finishedMs = finishedMs;
    }
  }

  private final ThemisScheduler scheduler;
  private final GpuLedger ledger;

  StateReader(ThemisScheduler scheduler, GpuLedger ledger) {
    this.scheduler = scheduler;
    this.ledger = ledger;
  }

  /**
   * Everything alive, and the applications that {@code ended}: a reader that was away would else never learn how.
   * {@code seq} must have been read before: what changes meanwhile is then told again.
   */
  byte[] snapshot(String startId, long seq, Stamps.Stamp stamp, List<Outbox.Entry> ended) throws IOException {
    return Wire.bytes(json -> {
      writeHead(json, startId, seq, true, false);
      writeStamp(json, stamp);
      json.writeArrayFieldStart("nodes");
      for (FiCaSchedulerNode node : scheduler.getAllNodes()) {
        writeNode(json, node);
      }
      json.writeEndArray();
      json.writeArrayFieldStart("applications");
      for (ApplicationId id : scheduler.getSchedulerApplications().keySet()) {
        writeApplication(json, id, null);
      }
      for (Outbox.Entry entry : ended) {
        writeApplication(json, ApplicationId.fromString(entry.id), (EndedApplication) entry.tombstone);
      }
      json.writeEndArray();
      json.writeArrayFieldStart("containers");
      for (GpuLedger.Held held : ledger.all()) {
        writeContainer(json, held);
      }
      json.writeEndArray();
    });
  }

  /** What changed. {@code stamp} must have been taken before the batch was. */
  byte[] changes(String startId, Outbox.Batch batch, Stamps.Stamp stamp) throws IOException {
    return Wire.bytes(json -> {
      writeHead(json, startId, batch.seq, false, batch.needsResync);
      writeStamp(json, stamp);
      json.writeArrayFieldStart("nodes");
      for (Outbox.Entry entry : of(batch, Outbox.Kind.NODE)) {
        writeNode(json, entry.id);
      }
      json.writeEndArray();
      json.writeArrayFieldStart("applications");
      for (Outbox.Entry entry : of(batch, Outbox.Kind.APPLICATION)) {
        writeApplication(json, ApplicationId.fromString(entry.id), (EndedApplication) entry.tombstone);
      }
      json.writeEndArray();
      json.writeArrayFieldStart("containers");
      for (Outbox.Entry entry : of(batch, Outbox.Kind.CONTAINER)) {
        writeContainer(json, entry);
      }
      json.writeEndArray();
    });
  }

  private static Collection<Outbox.Entry> of(Outbox.Batch batch, Outbox.Kind kind) {
    List<Outbox.Entry> entries = new ArrayList<>();
    for (Outbox.Entry entry : batch.entries) {
      if (entry.kind == kind) {
        entries.add(entry);
      }
    }
    return entries;
  }

  private static void writeStamp(JsonGenerator json, Stamps.Stamp stamp) throws IOException {
    json.writeNumberField("lease_epoch", stamp.epoch);
    json.writeNumberField("lease_seq", stamp.seq);
  }

  private static void writeHead(JsonGenerator json, String startId, long seq, boolean isFull, boolean needsResync)
      throws IOException {
    json.writeStringField("start_id", startId);
    json.writeNumberField("seq", seq);
    json.writeBooleanField("is_full", isFull);
    json.writeBooleanField("needs_resync", needsResync);
    json.writeNumberField("rm_now_ms", System.currentTimeMillis());
  }

  private void writeNode(JsonGenerator json, String name) throws IOException {
    for (NodeId id : scheduler.getNodeIds(name)) {
      FiCaSchedulerNode node = scheduler.getNode(id);
      if (node != null) {
        writeNode(json, node);
        return;
      }
    }
    json.writeStartObject();
    json.writeStringField("node", name);
    json.writeStringField("state", "LOST");
    json.writeEndObject();
  }

  private static void writeNode(JsonGenerator json, FiCaSchedulerNode node) throws IOException {
    NodeState state = node.getRMNode().getState();
    boolean isUsable = state == NodeState.RUNNING || state == NodeState.DECOMMISSIONING;
    json.writeStartObject();
    json.writeStringField("node", node.getNodeName());
    json.writeStringField("rack", node.getRackName());
    json.writeNumberField("gpus_total", Gpus.of(node.getTotalResource()));
    json.writeNumberField("memory_free_mb", node.getUnallocatedResource().getMemorySize());
    json.writeNumberField("vcores_free", node.getUnallocatedResource().getVirtualCores());
    json.writeStringField("state", isUsable ? state.name() : "LOST");
    json.writeEndObject();
  }

  private void writeApplication(JsonGenerator json, ApplicationId id, EndedApplication ended) throws IOException {
    RMApp app = scheduler.getRMContext().getRMApps().get(id);
    SchedulerApplication<FiCaSchedulerApp> scheduled = scheduler.getSchedulerApplications().get(id);
    boolean isActive = scheduled != null && ended == null;
    json.writeStartObject();
    json.writeStringField("application_id", id.toString());
    json.writeStringField("state", isActive ? "ACTIVE" : "FINISHED");
    if (app != null) {
      json.writeStringField("name", app.getName());
      json.writeStringField("user", app.getUser());
      json.writeStringField("queue", app.getQueue());
      json.writeArrayFieldStart("tags");
      for (String tag : new TreeSet<>(app.getApplicationTags())) {
        json.writeString(tag);
      }
      json.writeEndArray();
      json.writeNumberField("submit_rm_ms", app.getSubmitTime());
      json.writeNumberField("progress", app.getProgress());
    }
    if (isActive) {
      json.writeArrayFieldStart("asks");
      writeAsks(json, scheduled.getCurrentAppAttempt());
      json.writeEndArray();
    } else {
      writeEnd(json, app, ended);
    }
    json.writeEndObject();
  }

  private static void writeEnd(JsonGenerator json, RMApp app, EndedApplication ended) throws IOException {
    FinalApplicationStatus status = app == null ? null : app.getFinalApplicationStatus();
    String text = status == null ? "" : status.name();
    // An application killed before its AM said anything has a state, but no final status.
    if (ended != null && (status == null || status == FinalApplicationStatus.UNDEFINED)) {
      text = ended.state == RMAppState.FINISHED ? "SUCCEEDED" : ended.state.name();
    }
    long finishedMs = app == null ? 0 : app.getFinishTime();
    json.writeStringField("final_status", text);
    json.writeNumberField("finish_rm_ms", finishedMs > 0 || ended == null ? finishedMs : ended.finishedMs);
  }

  private static void writeAsks(JsonGenerator json, FiCaSchedulerApp attempt) throws IOException {
    // Until the AM runs, the only ask is the one for the AM itself.
    if (attempt == null || attempt.isStopped() || attempt.isWaitingForAMContainer()) {
      return;
    }
    // A scheduler key is a priority and an allocation request id, and YARN keeps one size a key: it is grouped already.
    for (SchedulerRequestKey key : attempt.getAppSchedulingInfo().getSchedulerKeys()) {
      PendingAsk ask = attempt.getAppSchedulingInfo().getPendingAsk(key, ResourceRequest.ANY);
      int gpus = Gpus.of(ask.getPerAllocationResource());
      if (gpus > 0 && ask.getCount() > 0 && key.getContainerToUpdate() == null) {
        json.writeStartObject();
        json.writeNumberField("gpus", gpus);
        json.writeNumberField("count", ask.getCount());
        json.writeNumberField("memory_mb", ask.getPerAllocationResource().getMemorySize());
        json.writeNumberField("vcores", ask.getPerAllocationResource().getVirtualCores());
        json.writeNumberField("priority", key.getPriority().getPriority());
        json.writeNumberField("allocation_request_id", key.getAllocationRequestId());
        json.writeEndObject();
      }
    }
  }

  private void writeContainer(JsonGenerator json, Outbox.Entry entry) throws IOException {
    if (entry.tombstone != null) {
      EndedContainer ended = (EndedContainer) entry.tombstone;
      json.writeStartObject();
      writeContainer(json, ended.containerId, ended.applicationId, ended.node, ended.gpus, ended.isAm,
          "COMPLETED", ended.createdMs);
      json.writeNumberField("exit_status", ended.exitStatus);
      json.writeStringField("ended_by", ended.endedBy);
      json.writeNumberField("finished_rm_ms", ended.finishedMs);
      json.writeEndObject();
      return;
    }
    GpuLedger.Held held = ledger.get(ContainerId.fromString(entry.id));
    if (held != null) {
      writeContainer(json, held);
    }
    // Else it ended while this report was made, and its end is a later change.
  }

  private static void writeContainer(JsonGenerator json, GpuLedger.Held held) throws IOException {
    json.writeStartObject();
    writeContainer(json, held.containerId.toString(), held.applicationId.toString(), held.node, held.gpus,
        held.isAm || held.container.isAMContainer(), stateOf(held), held.createdMs);
    json.writeEndObject();
  }

  private static String stateOf(GpuLedger.Held held) {
    switch (held.container.getState()) {
      case NEW:
      case RESERVED:
      case ALLOCATED:
      case ACQUIRED:
        return "ALLOCATED";
      default:
        // A container that just ended stays RUNNING here until its tombstone, which has the exit status, is told.
        return "RUNNING";
    }
  }

  private static void writeContainer(JsonGenerator json, String containerId, String applicationId, String node,
      int gpus, boolean isAm, String state, long createdMs) throws IOException {
    json.writeStringField("container_id", containerId);
    json.writeStringField("application_id", applicationId);
    json.writeStringField("node", node);
    json.writeNumberField("gpus", gpus);
    json.writeBooleanField("is_am", isAm);
    json.writeStringField("state", state);
    json.writeNumberField("created_rm_ms", createdMs);
  }
}
