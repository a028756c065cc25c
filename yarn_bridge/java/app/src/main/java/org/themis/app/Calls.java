package org.themis.app;

import java.util.Map;
import org.apache.hadoop.yarn.api.records.FinalApplicationStatus;

/**
 * What the child may call over Py4J. Structured arguments and answers are JSON in bytes, so that one call
 * carries a batch. A refused argument throws, and the child sees the reason.
 */
public final class Calls {
  private final Yarn yarn;
  private final Events events;
  private final byte[] hello;
  private volatile FinalApplicationStatus status;
  private volatile String diagnostics = "";

  Calls(Yarn yarn, Events events, Map<String, Object> hello) {
    this.yarn = yarn;
    this.events = events;
    this.hello = Json.bytes(hello);
  }

  /** Who this is: application_id, attempt (from 1), container_id, max_memory_mb, max_gpus. */
  public byte[] hello() {
    return hello;
  }

  /** Events since the last poll, oldest first: a JSON list, empty when nothing came within waitMs. */
  public byte[] poll(int waitMs) throws InterruptedException {
    return Json.bytes(events.take(waitMs));
  }

  /** allocation_request_id, memory_mb, vcores, gpus, priority, nodes, racks, relax_locality. */
  public void ask(byte[] json) {
    yarn.ask(Json.object(json));
  }

  public void cancel(long allocationRequestId) {
    yarn.cancel(allocationRequestId);
  }

  /** command (list of words), env (object). */
  public void start(String containerId, byte[] json) {
    Map<String, Object> launch = Json.object(json);
    yarn.start(containerId, Json.strings(launch, "command"), Json.stringMap(launch, "env"));
  }

  public void release(String containerId) {
    yarn.release(containerId);
  }

  /** Between 0 and 1; shown by YARN. */
  public void progress(double fraction) {
    yarn.setProgress((float) fraction);
  }

  /**
   * SUCCEEDED, FAILED or KILLED. Takes effect when the child exits with status 0, so that YARN never hears
   * of a success whose last writes were not made.
   */
  public void finish(String statusName, String why) {
    diagnostics = why;
    status = FinalApplicationStatus.valueOf(statusName);
  }

  FinalApplicationStatus status() {
    return status;
  }

  String diagnostics() {
    return diagnostics;
  }
}
