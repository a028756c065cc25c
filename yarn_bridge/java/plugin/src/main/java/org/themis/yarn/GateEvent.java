package org.themis.yarn;

import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.ContainerPreemptEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEventType;

/**
 * Our own order to the scheduler's thread. YARN's events of these types would not do: with lazy preemption on, its kill
 * only marks, and its release of a reservation does not look whether the reservation is still there.
 */
final class GateEvent extends ContainerPreemptEvent {
  final String reason;

  private GateEvent(RMContainer container, SchedulerEventType type, String reason) {
    super(container.getApplicationAttemptId(), container, type);
    this.reason = reason;
  }

  static GateEvent kill(RMContainer container, String reason) {
    return new GateEvent(container, SchedulerEventType.MARK_CONTAINER_FOR_KILLABLE, reason);
  }

  static GateEvent unreserve(RMContainer container) {
    return new GateEvent(container, SchedulerEventType.KILL_RESERVED_CONTAINER, "no lease");
  }

  boolean isKill() {
    return getType() == SchedulerEventType.MARK_CONTAINER_FOR_KILLABLE;
  }
}
