package org.themis.yarn;

/** What the scheduler is made of. A test build makes it of parts that fail. */
class Parts {
  LeaseBook book() {
    return new LeaseBook(Settings.LEASES_MAX);
  }

  GpuLedger ledger() {
    return new GpuLedger();
  }

  Fallback fallback(Settings settings) {
    return new Fallback(settings.fallback(), settings.fallbackAfterMs());
  }

  Stamps stamps() {
    return new Stamps();
  }

  Gate gate(Settings settings) {
    return new Gate(book(), ledger(), fallback(settings), stamps());
  }

  Outbox outbox(Settings settings) {
    return new Outbox(settings.outboxMax());
  }

  Tracker tracker(ThemisScheduler scheduler, Gate gate, Outbox outbox) {
    return new Tracker(scheduler, gate, outbox);
  }

  DrainTimer timer(Gate gate, DrainTimer.Actions actions) {
    return new DrainTimer(gate, actions, ThemisScheduler::monotonicMs);
  }

  EntryPoint entryPoint(String startId, ThemisScheduler scheduler, Outbox outbox, DrainTimer timer) {
    Gate gate = scheduler.gate();
    return new EntryPoint(startId, gate, outbox, new StateReader(scheduler, gate.ledger), timer, scheduler);
  }

  Gateway gateway(Settings settings, String startId, EntryPoint entryPoint) {
    return Gateway.open(settings.gatewayDir(), startId, entryPoint);
  }
}
