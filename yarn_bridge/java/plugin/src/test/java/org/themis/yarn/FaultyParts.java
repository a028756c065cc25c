package org.themis.yarn;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.server.api.protocolrecords.NMContainerStatus;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ResourceCommitRequest;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerApp;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerNode;

/** Parts with fault points; garbage is what no correct part would ever answer. */
class FaultyParts extends Parts {
  private static final byte[] GARBAGE = "{\"is_accepted\": 17, \"seq".getBytes(StandardCharsets.UTF_8);

  @Override
  LeaseBook book() {
    LeaseBook book = new LeaseBook(Settings.LEASES_MAX) {
      @Override
      int allowed(ApplicationId application, String node) {
        return Faults.strike("book.allowed") ? Integer.MAX_VALUE : super.allowed(application, node);
      }
    };
    Faults.lock("lock.book", book);
    return book;
  }

  @Override
  GpuLedger ledger() {
    return new GpuLedger() {
      @Override
      int used(ApplicationId application, String node) {
        return Faults.strike("ledger.used") ? Integer.MIN_VALUE : super.used(application, node);
      }

      @Override
      boolean reserve(ApplicationId application, String node, int gpus, int allowed) {
        return Faults.strike("ledger.reserve") || super.reserve(application, node, gpus, allowed);
      }

      @Override
      void add(Held container, boolean isReserved) {
        if (!Faults.strike("ledger.add")) {
          super.add(container, isReserved);
        }
      }

      @Override
      Held remove(ContainerId id) {
        return Faults.strike("ledger.remove") ? null : super.remove(id);
      }
    };
  }

  @Override
  Fallback fallback(Settings settings) {
    Fallback fallback = new Fallback(settings.fallback(), settings.fallbackAfterMs()) {
      @Override
      Mode mode() {
        return Faults.strike("fallback.mode") ? null : super.mode();
      }

      @Override
      synchronized void tick(long nowMs) {
        if (!Faults.strike("fallback.tick")) {
          super.tick(nowMs);
        }
      }
    };
    Faults.lock("lock.fallback", fallback);
    return fallback;
  }

  @Override
  Stamps stamps() {
    Stamps stamps = new Stamps() {
      @Override
      long begin() {
        return Faults.strike("stamps.begin") ? -1 : super.begin();
      }

      @Override
      void land(long number) {
        if (!Faults.strike("stamps.land")) {
          super.land(number);
        }
      }
    };
    Faults.lock("lock.stamps", stamps);
    return stamps;
  }

  @Override
  Gate gate(Settings settings) {
    return new Gate(book(), ledger(), fallback(settings), stamps()) {
      @Override
      boolean fits(ApplicationId application, String node, int gpus) {
        return Faults.strike("gate.fits") || super.fits(application, node, gpus);
      }

      @Override
      boolean reserve(ApplicationId application, String node, int gpus) {
        return Faults.strike("gate.reserve") || super.reserve(application, node, gpus);
      }
    };
  }

  @Override
  Outbox outbox(Settings settings) {
    Outbox outbox = new Outbox(settings.outboxMax()) {
      @Override
      void note(Kind kind, String id, Object tombstone) {
        boolean isGarbage = Faults.strike("outbox.note");
        super.note(kind, isGarbage ? "\ud800no such thing" : id, isGarbage ? null : tombstone);
      }
    };
    Faults.lock("lock.outbox", outbox.lock);
    return outbox;
  }

  @Override
  DrainTimer timer(Gate gate, DrainTimer.Actions actions) {
    DrainTimer timer = new DrainTimer(gate, actions, ThemisScheduler::monotonicMs) {
      @Override
      void step(long nowMs) {
        super.step(Faults.strike("timer.step") ? Long.MIN_VALUE : nowMs);
      }
    };
    Faults.lock("lock.timer", timer);
    return timer;
  }

  @Override
  EntryPoint entryPoint(String startId, ThemisScheduler scheduler, Outbox outbox, DrainTimer timer) {
    Gate gate = scheduler.gate();
    EntryPoint entryPoint = new FaultyEntryPoint(startId, gate, outbox, timer, scheduler);
    Faults.lock("lock.apply", entryPoint.applying);
    return entryPoint;
  }

  @Override
  Gateway gateway(Settings settings, String startId, EntryPoint entryPoint) {
    return Faults.strike("gateway.open") ? null : super.gateway(settings, startId, entryPoint);
  }

  @Override
  Tracker tracker(ThemisScheduler scheduler, Gate gate, Outbox outbox) {
    return new FaultyTracker(scheduler, gate, outbox);
  }

  /** Public, or Py4J could not call its methods. */
  public static final class FaultyEntryPoint extends EntryPoint {
    FaultyEntryPoint(String startId, Gate gate, Outbox outbox, DrainTimer timer, ThemisScheduler scheduler) {
      super(startId, gate, outbox, new StateReader(scheduler, gate.ledger), timer, scheduler);
    }

    @Override
    public byte[] hello() throws IOException {
      return Faults.strike("entry.hello") ? GARBAGE : super.hello();
    }

    @Override
    public byte[] snapshot() throws IOException, InterruptedException {
      return Faults.strike("entry.snapshot") ? null : super.snapshot();
    }

    @Override
    public byte[] changes(long afterSeq, int waitMs) throws IOException, InterruptedException {
      return Faults.strike("entry.changes") ? GARBAGE : super.changes(afterSeq, waitMs);
    }

    @Override
    public byte[] apply(byte[] message) throws IOException, InterruptedException {
      return super.apply(Faults.strike("entry.apply") ? GARBAGE : message);
    }

    @Override
    public byte[] diagnostics(byte[] message) throws IOException {
      return super.diagnostics(Faults.strike("entry.diagnostics") ? GARBAGE : message);
    }
  }

  private static final class FaultyTracker extends Tracker {
    FaultyTracker(ThemisScheduler scheduler, Gate gate, Outbox outbox) {
      super(scheduler, gate, outbox);
    }

    @Override
    Ticket before(ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request) {
      return Faults.strike("tracker.before") ? null : super.before(request);
    }

    @Override
    void after(Ticket ticket, ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request, boolean isDone) {
      // Garbage: a placement that was done counts as not done.
      super.after(ticket, request, isDone && !Faults.strike("tracker.after"));
    }

    @Override
    void noteApplication(ApplicationId id) {
      super.noteApplication(Faults.strike("tracker.noteApplication") ? null : id);
    }

    @Override
    void noteNode(NodeId id) {
      super.noteNode(Faults.strike("tracker.noteNode") ? NodeId.newInstance("nowhere", 1) : id);
    }

    @Override
    void launched(ContainerId id) {
      super.launched(Faults.strike("tracker.launched") ? null : id);
    }

    @Override
    void ended(RMContainer container, int exitStatus) {
      super.ended(Faults.strike("tracker.ended") ? null : container, exitStatus);
    }

    @Override
    void reservationEnded(RMContainer container) {
      super.reservationEnded(Faults.strike("tracker.reservationEnded") ? null : container);
    }

    @Override
    void recovered(List<NMContainerStatus> reports, NodeId node) {
      super.recovered(Faults.strike("tracker.recovered") ? Collections.singletonList(null) : reports, node);
    }

    @Override
    List<RMContainer> uncoveredReservations() {
      return Faults.strike("tick.reservations") ? Collections.singletonList(null) : super.uncoveredReservations();
    }

    @Override
    void sweep() {
      if (!Faults.strike("tick.sweep")) {
        super.sweep();
      }
    }
  }
}
