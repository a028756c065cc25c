package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What keeps a failure of ours away from the ResourceManager's threads, piece by piece. */
class FaultsTest {
  private static final ApplicationId APP = ApplicationId.newInstance(1_000, 1);
  private static final long NANOS_PER_MS = 1_000_000;

  private static ContainerId id(int number) {
    return ContainerId.newContainerId(ApplicationAttemptId.newInstance(APP, 1), number);
  }

  /** A thread that has the lock and keeps it until told. */
  private static CountDownLatch sitOn(Outbox outbox) throws Exception {
    CountDownLatch has = new CountDownLatch(1);
    CountDownLatch lets = new CountDownLatch(1);
    Thread reader = new Thread(() -> {
      outbox.lock.lock();
      try {
        has.countDown();
        lets.await();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      } finally {
        outbox.lock.unlock();
      }
    });
    reader.setDaemon(true);
    reader.start();
    has.await();
    return lets;
  }

  @Test
  @Timeout(30)
  void writersDoNotWaitForAReaderThatSitsOnTheOutbox() throws Exception {
    Outbox outbox = new Outbox(10);
    CountDownLatch lets = sitOn(outbox);
    outbox.note(Outbox.Kind.NODE, "n1");
    outbox.note(Outbox.Kind.NODE, "n2");
    outbox.poke();
    outbox.close();
    lets.countDown();
    assertEquals(2, outbox.changes(0, 0, 10).entries.size(), "nothing is lost");
  }

  @Test
  @Timeout(60)
  void whatComesWhileAReaderSitsThereIsBoundedAndThenResynced() throws Exception {
    Outbox outbox = new Outbox(10);
    outbox.note(Outbox.Kind.NODE, "n0");
    CountDownLatch lets = sitOn(outbox);
    for (int i = 0; i < Outbox.INTAKE_MAX + 1; i++) {
      outbox.note(Outbox.Kind.NODE, "n1");
    }
    lets.countDown();
    long seq = outbox.seq();
    assertTrue(outbox.changes(1, 0, 10).needsResync);
    assertFalse(outbox.changes(seq, 0, 10).needsResync);
    outbox.note(Outbox.Kind.NODE, "n2");
    assertEquals("n2", outbox.changes(seq, 0, 10).entries.get(0).id);
  }

  @Test
  @Timeout(30)
  void aSlowDiskHoldsUpNeitherStartNorStop() throws Exception {
    CountDownLatch disk = new CountDownLatch(1);
    GatewayKeeper keeper = new GatewayKeeper(() -> {
      try {
        disk.await();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
      return null;
    });
    keeper.start();
    long began = System.nanoTime();
    keeper.stop();
    assertTrue(System.nanoTime() - began < 3 * GatewayKeeper.CLOSE_MS_MAX * NANOS_PER_MS);
    disk.countDown();
  }

  @Test
  void aGatewayThatOpensAfterTheStopIsClosed(@TempDir Path folder) throws Exception {
    CountDownLatch disk = new CountDownLatch(1);
    Gateway[] late = new Gateway[1];
    GatewayKeeper keeper = new GatewayKeeper(() -> {
      try {
        disk.await();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
      late[0] = Gateway.open(folder.resolve("gateway").toString(), "s", null);
      return late[0];
    });
    keeper.start();
    keeper.stop();
    disk.countDown();
    Path file = folder.resolve("gateway").resolve(Gateway.FILE_NAME);
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (late[0] == null || file.toFile().exists()) {
      assertTrue(System.nanoTime() < end, "it stays open");
      Thread.sleep(10);
    }
  }

  @Test
  void aRefusedProposalIsNotRepeatedForAMoment() throws Exception {
    HoldOffs holdOffs = new HoldOffs();
    assertFalse(holdOffs.isOn(APP, "n1"));
    holdOffs.add(APP, "n1");
    assertTrue(holdOffs.isOn(APP, "n1"));
    assertFalse(holdOffs.isOn(APP, "n2"));
    holdOffs.remove(APP, "n1");
    assertFalse(holdOffs.isOn(APP, "n1"));
    holdOffs.add(APP, "n1");
    Thread.sleep(HoldOffs.MS + 50);
    assertFalse(holdOffs.isOn(APP, "n1"));
    for (int i = 0; i <= HoldOffs.MAX; i++) {
      holdOffs.add(APP, "m" + i);
    }
    assertFalse(holdOffs.isOn(APP, "m0"), "bounded: the older ones are forgotten");
    assertTrue(holdOffs.isOn(APP, "m" + HoldOffs.MAX));
  }

  @Test
  void countersThatAFailureLeftWrongAreSetRight() {
    GpuLedger ledger = new GpuLedger();
    Stamps stamps = new Stamps();
    ledger.add(new GpuLedger.Held(id(1), "n", 1, false, 0, null), false);
    assertTrue(ledger.reserve(APP, "n", 2, 10));
    long flight = stamps.begin();
    assertFalse(ledger.recount(stamps), "those two may still be on their way");
    assertEquals(3, ledger.used(APP, "n"));
    stamps.land(flight);
    assertTrue(ledger.recount(stamps));
    assertEquals(1, ledger.used(APP, "n"));
    ledger.cancel(APP, "n", 2);
    assertEquals(-1, ledger.used(APP, "n"));
    assertFalse(ledger.reserve(APP, "n", 1, 10), "in doubt the gate is shut");
    assertTrue(ledger.recount(stamps));
    assertTrue(ledger.reserve(APP, "n", 1, 10));
  }

  @Test
  void aPlacementThatNeverLandsIsGivenUp() {
    Stamps stamps = new Stamps();
    stamps.begin();
    stamps.applied(1, 1);
    assertEquals(0, stamps.current().seq);
    long now = System.nanoTime();
    stamps.landLost(now + (Stamps.FLIGHT_MS_MAX - 100) * NANOS_PER_MS);
    assertTrue(stamps.hasFlights(), "it may still come");
    stamps.landLost(now + (Stamps.FLIGHT_MS_MAX + 100) * NANOS_PER_MS);
    assertEquals(1, stamps.current().seq);
  }

  @Test
  void anAbsurdCountShutsTheGate() {
    LeaseBook book = new LeaseBook(10) {
      @Override
      int allowed(ApplicationId application, String node) {
        return Integer.MAX_VALUE;
      }
    };
    Gate gate = new Gate(book, new GpuLedger(), new Fallback(Fallback.Kind.CLOSED, 100), new Stamps());
    gate.fallback.start(0);
    gate.fallback.signOfLife(1, true, false);
    assertFalse(gate.fits(APP, "n", 1));
    assertFalse(gate.reserve(APP, "n", 1));
    assertTrue(gate.fits(APP, "n", 0));
  }
}
