package org.themis.app;

import java.util.List;
import org.apache.hadoop.yarn.api.records.Container;
import org.apache.hadoop.yarn.api.records.ContainerStatus;
import org.apache.hadoop.yarn.api.records.NodeReport;
import org.apache.hadoop.yarn.api.records.PreemptionContainer;
import org.apache.hadoop.yarn.api.records.PreemptionMessage;
import org.apache.hadoop.yarn.api.records.UpdatedContainer;
import org.apache.hadoop.yarn.client.api.async.AMRMClientAsync;

/** The ResourceManager's answers, turned into events. Runs on YARN's threads, so it never waits for the child. */
final class FromResourceManager extends AMRMClientAsync.AbstractCallbackHandler {
  private final Yarn yarn;
  private final Events events;
  private final Runnable whenOver;

  FromResourceManager(Yarn yarn, Events events, Runnable whenOver) {
    this.yarn = yarn;
    this.events = events;
    this.whenOver = whenOver;
  }

  @Override
  public void onContainersAllocated(List<Container> containers) {
    containers.forEach(yarn::onAllocated);
  }

  @Override
  public void onContainersCompleted(List<ContainerStatus> statuses) {
    for (ContainerStatus status : statuses) {
      yarn.onCompleted(status.getContainerId(), status.getExitStatus(), status.getDiagnostics());
    }
  }

  @Override
  public void onPreemptionMessageReceived(PreemptionMessage message) {
    if (message.getStrictContract() != null) {
      tell(message.getStrictContract().getContainers());
    }
    if (message.getContract() != null) {
      tell(message.getContract().getContainers());
    }
  }

  private void tell(Iterable<PreemptionContainer> containers) {
    if (containers != null) {
      for (PreemptionContainer container : containers) {
        yarn.onPreemptionNotice(container.getId());
      }
    }
  }

  @Override
  public void onShutdownRequest() {
    events.put("shutdown", "diagnostics", "the ResourceManager no longer knows this attempt");
    whenOver.run();
  }

  @Override
  public void onError(Throwable err) {
    events.put("shutdown", "diagnostics", "the ResourceManager cannot be talked to: " + err);
    whenOver.run();
  }

  @Override
  public float getProgress() {
    return yarn.progress();
  }

  @Override
  public void onContainersUpdated(List<UpdatedContainer> containers) {
    // Tasks never ask to grow or shrink a container.
  }

  @Override
  public void onNodesUpdated(List<NodeReport> nodes) {
    // Containers of a lost node are reported completed one by one.
  }
}
