package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Collections;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.junit.jupiter.api.Test;

class GateTest {
  private static final ApplicationId APP = ApplicationId.newInstance(1_000, 1);
  private static final ContainerId ID = ContainerId.newContainerId(ApplicationAttemptId.newInstance(APP, 1), 2);

  private static Gate gate(Fallback.Kind kind, int leases) {
    Gate gate = new Gate(new LeaseBook(100), new GpuLedger(), new Fallback(kind, 100), new Stamps());
    gate.fallback.start(0);
    gate.book.start("s");
    gate.book.apply(new LeaseUpdate(1, "s", 1, true,
        leases == 0 ? Collections.emptyList() : Collections.singletonList(new GateLease("a", APP, "n", leases, false)),
        Collections.emptyList(), Collections.emptyList(), false));
    return gate;
  }

  @Test
  void isShutUntilTheFirstFullUpdate() {
    Gate gate = gate(Fallback.Kind.PASS_THROUGH, 4);
    assertFalse(gate.fits(APP, "n", 1));
    assertTrue(gate.fits(APP, "n", 0), "no GPUs, no gate");
    gate.fallback.signOfLife(1, false, false);
    assertFalse(gate.fits(APP, "n", 1));
    gate.fallback.signOfLife(2, true, false);
    assertTrue(gate.fits(APP, "n", 4));
    assertFalse(gate.fits(APP, "n", 5));
  }

  @Test
  void fallsBackAfterSilenceAndReturns() {
    Gate gate = gate(Fallback.Kind.CLOSED, 2);
    gate.fallback.signOfLife(50, true, false);
    gate.fallback.tick(149);
    assertEquals(Fallback.Mode.LEASES, gate.fallback.mode());
    gate.fallback.tick(150);
    assertEquals(Fallback.Mode.CLOSED, gate.fallback.mode());
    assertFalse(gate.fits(APP, "n", 1));
    gate.fallback.signOfLife(151, true, false);
    assertTrue(gate.fits(APP, "n", 1));

    Gate open = gate(Fallback.Kind.PASS_THROUGH, 0);
    open.fallback.tick(Long.MIN_VALUE);
    assertEquals(Fallback.Mode.WAITING, open.fallback.mode(), "a clock gone back opens nothing");
    open.fallback.tick(100);
    assertTrue(open.fits(APP, "n", 8));
  }

  @Test
  void isOpenWhileTheArbiterOnlyLooksOnAndStaysSoInItsSilence() {
    Gate gate = gate(Fallback.Kind.CLOSED, 1);
    gate.fallback.signOfLife(1, true, false);
    assertTrue(gate.reserve(APP, "n", 1));
    gate.fallback.signOfLife(2, true, true);
    assertEquals(Fallback.Mode.OBSERVING, gate.fallback.mode());
    assertTrue(gate.fits(APP, "n", 1_000));
    assertTrue(gate.reserve(APP, "n", 7));
    assertEquals(0, gate.excess(APP, "n"), "nothing is too much, so nothing is killed");
    gate.fallback.tick(1_000_000);
    assertEquals(Fallback.Mode.OBSERVING, gate.fallback.mode(), "nothing hung on its word");
    gate.fallback.signOfLife(1_000_001, true, false);
    assertEquals(Fallback.Mode.LEASES, gate.fallback.mode());
    assertFalse(gate.fits(APP, "n", 1));
    assertEquals(7, gate.excess(APP, "n"), "only a drain may take it back");
  }

  @Test
  void countsEachContainerOnce() {
    GpuLedger ledger = new GpuLedger();
    GpuLedger.Held held = new GpuLedger.Held(ID, "n", 2, false, 0, null);
    assertTrue(ledger.reserve(APP, "n", 2, 2));
    ledger.add(held, true);
    assertEquals(2, ledger.used(APP, "n"));
    ledger.add(held, false);
    assertEquals(2, ledger.used(APP, "n"));
    assertFalse(ledger.reserve(APP, "n", 1, 2));
    assertTrue(ledger.resize(held, 1));
    assertEquals(1, ledger.used(APP, "n"));
    assertEquals(held, ledger.remove(ID));
    assertNull(ledger.remove(ID));
    assertEquals(0, ledger.used(APP, "n"));
    assertFalse(ledger.resize(held, 4), "an ended container counts no more");
  }

  @Test
  void aContainerRecoveredWhileItsCommitWasCountedIsCountedOnce() {
    GpuLedger ledger = new GpuLedger();
    ledger.add(new GpuLedger.Held(ID, "n", 1, false, 0, null), false);
    assertTrue(ledger.reserve(APP, "n", 1, 5));
    ledger.add(new GpuLedger.Held(ID, "n", 1, false, 0, null), true);
    assertEquals(1, ledger.used(APP, "n"));
  }

  @Test
  void anAmsGpusAreNotCounted() {
    GpuLedger ledger = new GpuLedger();
    ledger.add(new GpuLedger.Held(ID, "n", 1, true, 0, null), false);
    assertEquals(0, ledger.used(APP, "n"));
    assertEquals(1, ledger.all().size());
    ledger.remove(ID);
    assertEquals(0, ledger.used(APP, "n"));
  }

  @Test
  void committersCannotShareOneLease() throws Exception {
    Gate gate = gate(Fallback.Kind.CLOSED, 3);
    gate.fallback.signOfLife(1, true, false);
    AtomicInteger won = new AtomicInteger();
    CountDownLatch go = new CountDownLatch(1);
    Thread[] committers = new Thread[8];
    for (int i = 0; i < committers.length; i++) {
      committers[i] = new Thread(() -> {
        try {
          go.await();
        } catch (InterruptedException e) {
          return;
        }
        for (int n = 0; n < 1_000; n++) {
          if (gate.reserve(APP, "n", 1)) {
            won.incrementAndGet();
          }
        }
      });
      committers[i].start();
    }
    go.countDown();
    for (Thread committer : committers) {
      committer.join();
    }
    assertEquals(3, won.get());
  }
}
