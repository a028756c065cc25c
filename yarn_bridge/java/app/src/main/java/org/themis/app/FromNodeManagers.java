package org.themis.app;

import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.ContainerStatus;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.client.api.async.NMClientAsync;

/** The NodeManagers' answers to starts, turned into events. Ends are told by the ResourceManager alone. */
final class FromNodeManagers extends NMClientAsync.AbstractCallbackHandler {
  private final Events events;

  FromNodeManagers(Events events) {
    this.events = events;
  }

  @Override
  public void onContainerStarted(ContainerId container, Map<String, ByteBuffer> services) {
    events.put("started", "container_id", container.toString());
  }

  @Override
  public void onStartContainerError(ContainerId container, Throwable err) {
    events.put("start_failed", "container_id", container.toString(), "diagnostics", String.valueOf(err));
  }

  @Override
  public void onContainerStatusReceived(ContainerId container, ContainerStatus status) {
    // Never asked for.
  }

  @Override
  public void onContainerStopped(ContainerId container) {
    // Containers are released through the ResourceManager, never stopped through a NodeManager.
  }

  @Override
  public void onContainerResourceIncreased(ContainerId container, Resource size) {
    // Never asked for.
  }

  @Override
  public void onContainerResourceUpdated(ContainerId container, Resource size) {
    // Never asked for.
  }

  @Override
  public void onGetContainerStatusError(ContainerId container, Throwable err) {
    // Never asked for.
  }

  @Override
  public void onIncreaseContainerResourceError(ContainerId container, Throwable err) {
    // Never asked for.
  }

  @Override
  public void onUpdateContainerResourceError(ContainerId container, Throwable err) {
    // Never asked for.
  }

  @Override
  public void onStopContainerError(ContainerId container, Throwable err) {
    // Never asked for.
  }
}
