package org.themis.yarn;

import org.apache.hadoop.yarn.api.records.ApplicationId;

/** One lease as the gate sees it. A value. */
final class GateLease {
  final String leaseId;
  final ApplicationId applicationId;
  final String node;
  final int gpus;
  final boolean isDraining;

  GateLease(String leaseId, ApplicationId applicationId, String node, int gpus, boolean isDraining) {
    this.leaseId = leaseId;
    this.applicationId = applicationId;
    this.node = node;
    this.gpus = gpus;
    this.isDraining = isDraining;
  }

  GateLease draining() {
    return new GateLease(leaseId, applicationId, node, gpus, true);
  }

  boolean isSameAs(GateLease other) {
    return other != null && leaseId.equals(other.leaseId) && applicationId.equals(other.applicationId)
        && node.equals(other.node) && gpus == other.gpus && isDraining == other.isDraining;
  }

  @Override
  public String toString() {
    return "lease=" + leaseId + " application=" + applicationId + " node=" + node + " gpus=" + gpus;
  }
}
