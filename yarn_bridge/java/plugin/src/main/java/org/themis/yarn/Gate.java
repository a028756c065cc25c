package org.themis.yarn;

import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.yarn.api.records.ApplicationId;

/**
 * May this application have so many more GPUs on this node? Leases, what is in use, and who leads, put together.
 * Called on the scheduler's threads: reads volatile fields and concurrent maps, waits for nothing.
 */
class Gate {
  final LeaseBook book;
  final GpuLedger ledger;
  final Fallback fallback;
  final Stamps stamps;
  final HoldOffs holdOffs = new HoldOffs();

  /** How often each hook was asked and said no; by them a test sees that a newer YARN still calls the right one. */
  final AtomicLong prechecks2 = new AtomicLong();
  final AtomicLong prechecks3 = new AtomicLong();
  final AtomicLong precheckRefusals = new AtomicLong();
  final AtomicLong commits = new AtomicLong();
  final AtomicLong commitRefusals = new AtomicLong();
  final AtomicLong reservationRefusals = new AtomicLong();
  final AtomicLong kills = new AtomicLong();
  final AtomicLong preemptMarks = new AtomicLong();

  Gate(LeaseBook book, GpuLedger ledger, Fallback fallback, Stamps stamps) {
    this.book = book;
    this.ledger = ledger;
    this.fallback = fallback;
    this.stamps = stamps;
  }

  /** GPUs that leases (or the fall-back) let the application use on the node, those in use included. */
  int allowed(ApplicationId application, String node) {
    Fallback.Mode mode = fallback.mode();
    if (mode.isOpen()) {
      return Integer.MAX_VALUE;
    }
    int gpus = mode == Fallback.Mode.LEASES ? book.allowed(application, node) : 0;
    // No node has so many: in doubt the gate is shut.
    return gpus <= Settings.NODE_GPUS_MAX ? gpus : 0;
  }

  /** True where {@code gpus} more fit. Without GPUs everything does. */
  boolean fits(ApplicationId application, String node, int gpus) {
    if (gpus <= 0) {
      return true;
    }
    int used = ledger.used(application, node);
    return used >= 0 && used <= allowed(application, node) - gpus;
  }

  /** Fits, and counts the GPUs at once: the authority. Undo with {@link GpuLedger#cancel}. */
  boolean reserve(ApplicationId application, String node, int gpus) {
    // Where everything is let in the limit is far above any count, so nothing overflows.
    return ledger.reserve(application, node, gpus, allowed(application, node));
  }

  /** GPUs in use beyond the leases, which only a drain may take back; 0 while plain YARN rules. */
  int excess(ApplicationId application, String node) {
    if (fallback.mode().isOpen()) {
      return 0;
    }
    return Math.max(0, ledger.used(application, node) - book.allowed(application, node));
  }
}
