package org.themis.yarn;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.util.YarnVersionInfo;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the bridge calls over Py4J, on the gateway's own threads; docs/reference/plugin-protocol.md is its contract.
 * Public because Py4J finds methods by reflection.
 */
public class EntryPoint {
  static final int PROTOCOL = 1;
  private static final Logger LOG = LoggerFactory.getLogger(EntryPoint.class);

  /** Below the time that the bridge waits for an answer. */
  static final long APPLY_WAIT_MS = 5_000;

  final ReentrantLock applying = new ReentrantLock();
  private final String startId;
  private final Gate gate;
  private final Outbox outbox;
  private final StateReader reader;
  private final DrainTimer timer;
  private final ThemisScheduler scheduler;
  /** What the last report claimed; a reader is not kept waiting while there is a newer stamp to tell. */
  private volatile Stamps.Stamp toldStamp = Stamps.Stamp.NONE;

  EntryPoint(String startId, Gate gate, Outbox outbox, StateReader reader, DrainTimer timer,
      ThemisScheduler scheduler) {
    this.startId = startId;
    this.gate = gate;
    this.outbox = outbox;
    this.reader = reader;
    this.timer = timer;
    this.scheduler = scheduler;
  }

  /** Who is here: a Hello message. */
  public byte[] hello() throws IOException {
    String version = EntryPoint.class.getPackage().getImplementationVersion();
    return Wire.bytes(json -> {
      json.writeNumberField("protocol", PROTOCOL);
      json.writeStringField("cluster_id", scheduler.getConfig().get(YarnConfiguration.RM_CLUSTER_ID, ""));
      json.writeStringField("start_id", startId);
      json.writeStringField("plugin_version", version == null ? "unpacked" : version);
      json.writeStringField("rm_version", YarnVersionInfo.getVersion());
      json.writeNumberField("rm_now_ms", System.currentTimeMillis());
    });
  }

  /** Everything alive: a full Report. */
  public byte[] snapshot() throws IOException, InterruptedException {
    Stamps.Stamp stamp = gate.stamps.current();
    toldStamp = stamp;
    return reader.snapshot(startId, outbox.seq(), stamp, outbox.ended(Outbox.Kind.APPLICATION));
  }

  /**
   * What changed after {@code afterSeq}: a Report. Waits up to {@code waitMs} (at most 1,000) for a first change, or for
   * a lease update to be applied.
   */
  public byte[] changes(long afterSeq, int waitMs) throws IOException, InterruptedException {
    boolean hasNews = !gate.stamps.current().isSameAs(toldStamp);
    outbox.await(afterSeq, hasNews ? 0 : Math.max(0, Math.min(waitMs, Settings.WAIT_MS_MAX)));
    // The stamp before the changes: what is read after it shows every container of the leases before it.
    Stamps.Stamp stamp = gate.stamps.current();
    Outbox.Batch batch = outbox.changes(afterSeq, 0, Settings.CHANGES_PER_REPORT_MAX);
    if (batch.entries.size() == Settings.CHANGES_PER_REPORT_MAX) {
      stamp = toldStamp; // what is left out of this report may be one of those containers
    }
    toldStamp = stamp;
    return reader.changes(startId, batch, stamp);
  }

  /**
   * Takes a LeaseUpdate whole or not at all: a LeaseReply. One at a time, so that the log tells the true order.
   *
   * @throws IOException where another update has been on for {@value #APPLY_WAIT_MS} ms: callers do not heap up behind it
   */
  public byte[] apply(byte[] message) throws IOException, InterruptedException {
    if (!applying.tryLock(APPLY_WAIT_MS, TimeUnit.MILLISECONDS)) {
      throw new IOException("another lease update has been on for " + APPLY_WAIT_MS + " ms");
    }
    try {
      return applyAlone(message);
    } finally {
      applying.unlock();
    }
  }

  private byte[] applyAlone(byte[] message) throws IOException {
    if (message.length > Settings.MESSAGE_BYTES_MAX) {
      return refuse(LeaseReply.TOO_LARGE, "a lease update", message.length + " bytes");
    }
    LeaseUpdate update;
    try {
      update = Wire.leaseUpdate(message);
    } catch (Wire.BadMessage e) {
      return refuse(LeaseReply.BAD_MESSAGE, "a lease update", e.getMessage());
    }
    LeaseBook.Outcome outcome = gate.book.apply(update);
    if (!outcome.reply.isAccepted) {
      if (Guard.mayLog("apply " + outcome.reply.reason)) {
        LOG.warn("Themis refuses a lease update: {} (epoch={} seq={} start_id={})", outcome.reply.reason, update.epoch,
            update.seq, printable(update.startId));
      }
      return Wire.bytes(outcome.reply);
    }
    gate.fallback.signOfLife(System.nanoTime() / 1_000_000, gate.book.hasFull(), gate.book.isObserving());
    gate.holdOffs.clear();
    timer.accept(outcome.changes);
    gate.stamps.applied(outcome.reply.epoch, outcome.reply.seq);
    outbox.poke();
    log(update, outcome.changes);
    return Wire.bytes(outcome.reply);
  }

  /** Shows lines of text on the pages of applications: a LeaseReply. Fenced like leases, but without sequence. */
  public byte[] diagnostics(byte[] message) throws IOException {
    if (message.length > Settings.MESSAGE_BYTES_MAX) {
      return refuse(LeaseReply.TOO_LARGE, "diagnostics", message.length + " bytes");
    }
    Wire.Diagnostics diagnostics;
    try {
      diagnostics = Wire.diagnostics(message);
    } catch (Wire.BadMessage e) {
      return refuse(LeaseReply.BAD_MESSAGE, "diagnostics", e.getMessage());
    }
    String reason = gate.book.fence(diagnostics.startId, diagnostics.epoch);
    if (reason != null) {
      return Wire.bytes(gate.book.refuse(reason));
    }
    for (Map.Entry<ApplicationId, String> line : diagnostics.byApplication.entrySet()) {
      RMApp app = scheduler.getRMContext().getRMApps().get(line.getKey());
      if (app != null && app.getCurrentAppAttempt() != null) {
        String text = line.getValue();
        app.getCurrentAppAttempt().updateAMLaunchDiagnostics(
            text.substring(0, Math.min(text.length(), Settings.DIAGNOSTICS_CHARS_MAX)));
      }
    }
    return Wire.bytes(gate.book.accept());
  }

  /** How often the gate's hooks were asked and said no, for tests and for people who look into a ResourceManager. */
  public byte[] counters() throws IOException {
    return Wire.bytes(json -> {
      json.writeStringField("mode", gate.fallback.mode().name());
      json.writeNumberField("leases", gate.book.size());
      json.writeNumberField("containers", gate.ledger.all().size());
      json.writeNumberField("gpus_counted", gate.ledger.usedInAll());
      json.writeNumberField("prechecks2", gate.prechecks2.get());
      json.writeNumberField("prechecks3", gate.prechecks3.get());
      json.writeNumberField("precheck_refusals", gate.precheckRefusals.get());
      json.writeNumberField("commits", gate.commits.get());
      json.writeNumberField("commit_refusals", gate.commitRefusals.get());
      json.writeNumberField("reservation_refusals", gate.reservationRefusals.get());
      json.writeNumberField("preempt_marks", gate.preemptMarks.get());
      json.writeNumberField("kills", gate.kills.get());
    });
  }

  private byte[] refuse(String reason, String what, String why) throws IOException {
    if (Guard.mayLog(what + ' ' + reason)) {
      LOG.warn("Themis refuses {}: {} ({})", what, reason, printable(why));
    }
    return Wire.bytes(gate.book.refuse(reason));
  }

  /** Text from outside goes into the log on one line, whatever is in it. */
  private static String printable(String text) {
    String line = text.replaceAll("\\p{Cntrl}", "?");
    return line.substring(0, Math.min(line.length(), Settings.NAME_CHARS_MAX));
  }

  private static void log(LeaseUpdate update, LeaseBook.Changes changes) {
    int budget = Settings.LOG_LINES_PER_UPDATE_MAX;
    for (GateLease lease : changes.granted) {
      if (budget-- > 0) {
        LOG.info("Themis lease {}: {} epoch={} seq={}", lease.isDraining ? "listed as draining" : "granted", lease,
            update.epoch, update.seq);
      }
    }
    for (Map.Entry<GateLease, Long> drain : changes.drained.entrySet()) {
      if (budget-- > 0) {
        LOG.info("Themis lease drained: {} kill_in_ms={} epoch={} seq={}", drain.getKey(), drain.getValue(),
            update.epoch, update.seq);
      }
    }
    for (GateLease lease : changes.removed) {
      if (budget-- > 0) {
        LOG.info("Themis lease removed: {} epoch={} seq={}", lease, update.epoch, update.seq);
      }
    }
    if (budget < 0) {
      LOG.info("Themis: {} more lease changes in this update, epoch={} seq={}", -budget, update.epoch, update.seq);
    }
  }
}
