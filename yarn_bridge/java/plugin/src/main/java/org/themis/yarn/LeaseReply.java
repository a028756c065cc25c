package org.themis.yarn;

/** The answer to a message of the arbiter. A value. */
final class LeaseReply {
  static final String WRONG_START = "WRONG_START";
  static final String OLD_EPOCH = "OLD_EPOCH";
  static final String GAP = "GAP";
  static final String BAD_MESSAGE = "BAD_MESSAGE";
  static final String TOO_LARGE = "TOO_LARGE";

  final boolean isAccepted;
  final String reason;
  final long epoch;
  final String startId;
  final long seq;

  LeaseReply(boolean isAccepted, String reason, long epoch, String startId, long seq) {
    this.isAccepted = isAccepted;
    this.reason = reason;
    this.epoch = epoch;
    this.startId = startId;
    this.seq = seq;
  }
}
