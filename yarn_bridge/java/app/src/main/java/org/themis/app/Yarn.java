package org.themis.app;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.api.protocolrecords.RegisterApplicationMasterResponse;
import org.apache.hadoop.yarn.api.records.Container;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.ContainerLaunchContext;
import org.apache.hadoop.yarn.api.records.FinalApplicationStatus;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceInformation;
import org.apache.hadoop.yarn.client.api.AMRMClient.ContainerRequest;
import org.apache.hadoop.yarn.client.api.async.AMRMClientAsync;
import org.apache.hadoop.yarn.client.api.async.NMClientAsync;

/** The app's two YARN clients, its open asks by allocation request id, and the containers that it holds. */
final class Yarn {
  static final int HEARTBEAT_MS = 200;
  static final int ASKS_MAX = 1_000;
  private static final String NM_THREADS_MAX = "4";
  private static final String NM_CONNECT_MS_MAX = "10000";
  private static final String NM_RETRY_MS = "1000";

  private final Map<Long, ContainerRequest> asks = new ConcurrentHashMap<>();
  private final Map<String, Container> held = new ConcurrentHashMap<>();
  /** Containers whose preemption was told: YARN repeats its message at each heartbeat. */
  private final Set<String> noticed = ConcurrentHashMap.newKeySet();
  private final Events events;
  private final AMRMClientAsync<ContainerRequest> resourceManager;
  private final NMClientAsync nodeManagers;
  private volatile float progress;

  /** {@code whenOver} runs when the ResourceManager wants this attempt gone or can no longer be talked to. */
  Yarn(Configuration conf, Events events, Runnable whenOver) {
    this.events = events;
    // A task's node can be gone: the default of 3 minutes would hold one of few threads that long.
    conf.setIfUnset("yarn.client.nodemanager-connect.max-wait-ms", NM_CONNECT_MS_MAX);
    conf.setIfUnset("yarn.client.nodemanager-connect.retry-interval-ms", NM_RETRY_MS);
    conf.set("yarn.client.nodemanager-client-async.thread-pool-max-size", NM_THREADS_MAX);
    resourceManager =
        AMRMClientAsync.createAMRMClientAsync(HEARTBEAT_MS, new FromResourceManager(this, events, whenOver));
    resourceManager.init(conf);
    nodeManagers = NMClientAsync.createNMClientAsync(new FromNodeManagers(events));
    // At the end of the app the ResourceManager cleans up; asking each NodeManager would wait for dead ones.
    nodeManagers.getClient().cleanupRunningContainersOnStop(false);
    nodeManagers.init(conf);
  }

  RegisterApplicationMasterResponse register() throws Exception {
    resourceManager.start();
    nodeManagers.start();
    return resourceManager.registerApplicationMaster("", -1, "");
  }

  void unregister(FinalApplicationStatus status, String diagnostics) throws Exception {
    resourceManager.unregisterApplicationMaster(status, diagnostics, "");
  }

  /** One container; {@code allocation_request_id} names the ask and may not name an open one already. */
  void ask(Map<String, Object> wish) {
    long id = Json.whole(wish, "allocation_request_id", 0);
    if (id <= 0) {
      throw new IllegalArgumentException("allocation_request_id: 1 or more was expected, not " + id);
    }
    if (asks.size() >= ASKS_MAX) {
      throw new IllegalStateException("more than " + ASKS_MAX + " open asks");
    }
    Resource size =
        Resource.newInstance(Json.whole(wish, "memory_mb", 128), (int) Json.whole(wish, "vcores", 1));
    long gpus = Json.whole(wish, "gpus", 0);
    if (gpus > 0) {
      size.setResourceValue(ResourceInformation.GPU_URI, gpus);
    }
    List<String> nodes = Json.strings(wish, "nodes");
    List<String> racks = Json.strings(wish, "racks");
    ContainerRequest request =
        ContainerRequest.newBuilder()
            .capability(size)
            .nodes(nodes.isEmpty() ? null : nodes.toArray(new String[0]))
            .racks(racks.isEmpty() ? null : racks.toArray(new String[0]))
            .relaxLocality(Json.truth(wish, "relax_locality", true))
            .priority(Priority.newInstance((int) Json.whole(wish, "priority", 1)))
            .allocationRequestId(id)
            .build();
    if (asks.putIfAbsent(id, request) != null) {
      throw new IllegalArgumentException("allocation_request_id " + id + " names an open ask");
    }
    resourceManager.addContainerRequest(request);
  }

  /** Withdraws an open ask; one that was served already is left alone (its container is on its way). */
  void cancel(long allocationRequestId) {
    ContainerRequest request = asks.remove(allocationRequestId);
    if (request != null) {
      resourceManager.removeContainerRequest(request);
    }
  }

  void start(String containerId, List<String> command, Map<String, String> environment) {
    Container container = held.get(containerId);
    if (container == null) {
      throw new IllegalArgumentException("no such container here: " + containerId);
    }
    nodeManagers.startContainerAsync(
        container,
        ContainerLaunchContext.newInstance(
            Collections.emptyMap(),
            Shell.environment(environment),
            Collections.singletonList(Shell.command(command)),
            null,
            null,
            null));
  }

  /** Gives a container back; YARN reports it completed with exit status -100. Unknown ones are ignored. */
  void release(String containerId) {
    Container container = held.get(containerId);
    if (container != null) {
      resourceManager.releaseAssignedContainer(container.getId());
    }
  }

  void setProgress(float fraction) {
    progress = Math.max(0f, Math.min(1f, fraction));
  }

  float progress() {
    return progress;
  }

  void onAllocated(Container container) {
    ContainerRequest served = asks.remove(container.getAllocationRequestId());
    if (served == null) {
      // Withdrawn, or served twice because ask and allocation crossed on the wire: nobody waits for it.
      resourceManager.releaseAssignedContainer(container.getId());
      return;
    }
    // The client library counts asks, not answers: without this the next heartbeat after a
    // ResourceManager restart would ask for the same container again.
    resourceManager.removeContainerRequest(served);
    String id = container.getId().toString();
    held.put(id, container);
    events.put(
        "allocated",
        "container_id", id,
        "allocation_request_id", container.getAllocationRequestId(),
        "node", container.getNodeId().getHost(),
        "memory_mb", container.getResource().getMemorySize(),
        "gpus", gpusOf(container.getResource()));
  }

  void onCompleted(ContainerId container, int exitStatus, String diagnostics) {
    String id = container.toString();
    noticed.remove(id);
    if (held.remove(id) != null) {
      events.put(
          "completed", "container_id", id, "exit_status", exitStatus, "diagnostics", String.valueOf(diagnostics));
    }
  }

  void onPreemptionNotice(ContainerId container) {
    String id = container.toString();
    if (held.containsKey(id) && noticed.add(id)) {
      events.put("preempt", "container_id", id);
    }
  }

  private static long gpusOf(Resource size) {
    for (ResourceInformation each : size.getResources()) {
      if (each.getName().equals(ResourceInformation.GPU_URI)) {
        return each.getValue();
      }
    }
    return 0;
  }
}
