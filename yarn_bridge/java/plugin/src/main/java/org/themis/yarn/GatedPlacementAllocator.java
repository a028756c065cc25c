package org.themis.yarn;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Optional;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.server.resourcemanager.RMContext;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttempt;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.AppSchedulingInfo;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.SchedulingMode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.placement.LocalityAppPlacementAllocator;
import org.apache.hadoop.yarn.server.scheduler.SchedulerRequestKey;

/**
 * YARN's own placement with one more condition: a node is a candidate for a GPU ask only where the application has an
 * unused lease. YARN makes one of these for each application and scheduler key, by class name, hence public.
 */
public class GatedPlacementAllocator<N extends SchedulerNode> extends LocalityAppPlacementAllocator<N> {
  /**
   * From 3.3 on YARN asks a three-argument precheckNode and its two-argument one calls that, so the super call must go
   * there or it would come back to us. Null on 3.2, where there is none.
   */
  private static final MethodHandle SUPER_PRECHECK_3 = findSuperPrecheck3();

  private Gate gate;

  @Override
  public void initialize(AppSchedulingInfo info, SchedulerRequestKey key, RMContext context) {
    super.initialize(info, key, context);
    findGate();
  }

  private void findGate() {
    try {
      if (gate == null && rmContext.getScheduler() instanceof ThemisScheduler) {
        gate = ((ThemisScheduler) rmContext.getScheduler()).gate();
      }
    } catch (Throwable t) {
      Guard.caught("findGate", t); // shut for GPUs, until it is found the next time
    }
  }

  @Override
  public boolean precheckNode(SchedulerNode node, SchedulingMode mode) {
    if (SUPER_PRECHECK_3 != null) {
      return precheckNode(node, mode, Optional.empty());
    }
    if (gate != null) {
      gate.prechecks2.incrementAndGet();
    }
    return super.precheckNode(node, mode) && isOpen(node);
  }

  /** YARN 3.3's precheckNode: the same erasure, so this overrides it there and is a plain method on 3.2. */
  @SuppressWarnings("rawtypes")
  public boolean precheckNode(SchedulerNode node, SchedulingMode mode, Optional diagnostics) {
    if (gate != null) {
      gate.prechecks3.incrementAndGet();
    }
    boolean isCandidate;
    try {
      isCandidate = SUPER_PRECHECK_3 == null ? super.precheckNode(node, mode)
          : (boolean) SUPER_PRECHECK_3.invoke(this, node, mode, diagnostics);
    } catch (Throwable t) {
      Guard.caught("precheckNode", t);
      return false;
    }
    return isCandidate && isOpen(node);
  }

  /**
   * A lease has chosen the node already, so YARN's wait for a better one would only waste it; and as YARN counts waiting
   * in visits to candidate nodes, which are few here, it would last up to 40 heartbeats of one node. One location is what
   * YARN does not wait for. Asks that do not relax locality stay strict.
   */
  @Override
  public int getUniqueLocationAsks() {
    int locations = super.getUniqueLocationAsks();
    try {
      boolean isLed = gate != null && gate.fallback.mode() == Fallback.Mode.LEASES;
      return isLed && locations > 1 && gpus() > 0 && !isForAm() ? 1 : locations;
    } catch (Throwable t) {
      Guard.caught("getUniqueLocationAsks", t);
      return locations;
    }
  }

  private int gpus() {
    return Gpus.of(getPendingAsk(ResourceRequest.ANY).getPerAllocationResource());
  }

  private boolean isOpen(SchedulerNode node) {
    int gpus = 0;
    try {
      gpus = gpus();
      if (gpus == 0 || isForAm()) {
        return true;
      }
      findGate();
      ApplicationId app = appSchedulingInfo.getApplicationId();
      if (gate != null && gate.fits(app, node.getNodeName(), gpus) && !gate.holdOffs.isOn(app, node.getNodeName())) {
        return true;
      }
      if (gate != null) {
        gate.precheckRefusals.incrementAndGet();
      }
      return false;
    } catch (Throwable t) {
      Guard.caught("gate", t);
      return gpus == 0;
    }
  }

  /** As YARN decides it: a managed attempt without a master container asks for nothing but its AM. */
  private boolean isForAm() {
    RMApp app = rmContext.getRMApps().get(appSchedulingInfo.getApplicationId());
    if (app == null || app.getApplicationSubmissionContext().getUnmanagedAM()) {
      return false;
    }
    RMAppAttempt attempt = app.getRMAppAttempt(appSchedulingInfo.getApplicationAttemptId());
    return attempt != null && attempt.getMasterContainer() == null;
  }

  private static MethodHandle findSuperPrecheck3() {
    try {
      return MethodHandles.lookup().findSpecial(LocalityAppPlacementAllocator.class, "precheckNode",
          MethodType.methodType(boolean.class, SchedulerNode.class, SchedulingMode.class, Optional.class),
          GatedPlacementAllocator.class);
    } catch (NoSuchMethodException | IllegalAccessException e) {
      return null;
    }
  }
}
