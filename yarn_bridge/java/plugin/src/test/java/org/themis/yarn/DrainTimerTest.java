package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The timer stepped by hand, with a real gate, book and ledger behind it. */
class DrainTimerTest {
  private static final ApplicationId APP = ApplicationId.newInstance(1_000, 1);
  private static final String NODE = "n1";

  private final Gate gate = new Gate(new LeaseBook(100), new GpuLedger(), new Fallback(Fallback.Kind.PASS_THROUGH, 1_000_000), new Stamps());
  private final List<Long> marked = new ArrayList<>();
  private final List<Long> killed = new ArrayList<>();
  private long nowMs;
  private long seq;
  private final DrainTimer timer = new DrainTimer(gate, new DrainTimer.Actions() {
    @Override
    public void markForPreemption(GpuLedger.Held held) {
      marked.add(held.containerId.getContainerId());
    }

    @Override
    public void kill(GpuLedger.Held held, String reason) {
      killed.add(held.containerId.getContainerId());
    }

    @Override
    public void tick(long tickMs) {
      // Housekeeping is the scheduler's.
    }
  }, () -> nowMs);

  @BeforeEach
  void threeContainersUnderThreeLeases() {
    gate.book.start("s");
    gate.fallback.start(0);
    update(true, lease("a"), lease("b"), lease("c"));
    gate.fallback.signOfLife(0, true, false);
    for (int i = 1; i <= 3; i++) {
      gate.ledger.add(held(i, 1, i * 10, false), false);
    }
  }

  private static GateLease lease(String id) {
    return new GateLease(id, APP, NODE, 1, false);
  }

  private static ContainerId id(long number) {
    return ContainerId.newContainerId(ApplicationAttemptId.newInstance(APP, 1), number);
  }

  private static GpuLedger.Held held(long number, int gpus, long createdMs, boolean isAm) {
    return new GpuLedger.Held(id(number), NODE, gpus, isAm, createdMs, null);
  }

  private void update(boolean isFull, GateLease... leases) {
    timer.accept(gate.book.apply(new LeaseUpdate(1, "s", ++seq, isFull, Arrays.asList(leases),
        Collections.emptyList(), Collections.emptyList(), false)).changes);
  }

  private void remove(String... ids) {
    timer.accept(gate.book.apply(new LeaseUpdate(1, "s", ++seq, false, Collections.emptyList(), Arrays.asList(ids),
        Collections.emptyList(), false)).changes);
  }

  private void drain(long killInMs, String... ids) {
    timer.accept(gate.book.apply(new LeaseUpdate(1, "s", ++seq, false, Collections.emptyList(),
        Collections.emptyList(), Collections.singletonList(new LeaseUpdate.Drain(Arrays.asList(ids), killInMs)), false))
        .changes);
  }

  private void step(long atMs) {
    nowMs = atMs;
    timer.step(atMs);
  }

  @Test
  void warnsAtOnceAndTakesTheNewestAtTheEnd() {
    drain(1_000, "a");
    step(0);
    assertEquals(Collections.singletonList(3L), marked);
    step(999);
    assertTrue(killed.isEmpty());
    step(1_000);
    assertEquals(Collections.singletonList(3L), killed);
    step(60_000);
    assertEquals(1, killed.size());
    assertEquals(1, marked.size());
  }

  @Test
  void takesNothingWhereTheApplicationGaveAContainerBack() {
    drain(1_000, "a");
    step(0);
    gate.ledger.remove(id(1));
    step(1_000);
    assertTrue(killed.isEmpty());
  }

  @Test
  void takesNothingWhereTheLeaseIsGivenBack() {
    drain(1_000, "a");
    step(0);
    update(false, lease("a"));
    step(2_000);
    assertTrue(killed.isEmpty());
  }

  @Test
  void aLeaseThatVanishesKillsNothing() {
    remove("a", "b");
    step(100_000);
    assertTrue(killed.isEmpty());
    drain(0, "c");
    step(100_000);
    assertEquals(Collections.singletonList(3L), killed, "only as many as were drained, not all that is too much");
  }

  @Test
  void aDrainSentTwiceTakesOnce() {
    remove("a");
    drain(0, "b");
    step(1);
    gate.ledger.remove(id(3));
    drain(0, "b");
    step(2);
    assertEquals(Collections.singletonList(3L), killed);
  }

  @Test
  void theNewestWordOnADrainHolds() {
    drain(1_000, "a");
    drain(5_000, "a");
    step(1_000);
    assertTrue(killed.isEmpty());
    step(5_000);
    assertEquals(1, killed.size());
  }

  @Test
  void waitsForAContainerThatIsJustBeingCommitted() {
    for (int i = 1; i <= 3; i++) {
      gate.ledger.remove(id(i));
    }
    assertTrue(gate.reserve(APP, NODE, 3));
    drain(0, "a", "b", "c");
    step(1);
    assertTrue(killed.isEmpty());
    gate.ledger.add(held(9, 3, 50, false), true);
    step(300);
    assertEquals(Collections.singletonList(9L), killed);
  }

  @Test
  void plainYarnKillsNothing() {
    Gate open = new Gate(gate.book, gate.ledger, new Fallback(Fallback.Kind.PASS_THROUGH, 10), new Stamps());
    open.fallback.start(0);
    open.fallback.tick(10);
    remove("a", "b", "c");
    assertEquals(0, open.excess(APP, NODE));
    assertTrue(open.fits(APP, NODE, 100));
    assertTrue(open.reserve(APP, NODE, 100));
  }

  @Test
  void anAmIsNeverTaken() {
    for (int i = 1; i <= 3; i++) {
      gate.ledger.remove(id(i));
    }
    gate.ledger.add(held(1, 1, 99, true), false);
    drain(0, "a", "b", "c");
    step(1);
    assertTrue(killed.isEmpty());
    assertTrue(marked.isEmpty());
  }

  @Test
  void chooses() {
    List<GpuLedger.Held> live = Arrays.asList(held(1, 1, 10, false), held(2, 2, 20, false), held(3, 1, 20, false));
    assertEquals(3, DrainPlan.victims(live, Collections.emptySet(), 1).get(0).containerId.getContainerId());
    assertEquals(2, DrainPlan.victims(live, Collections.emptySet(), 2).size());
    assertEquals(1, DrainPlan.victims(live, Collections.singleton(id(1)), 1).get(0).containerId.getContainerId());
    assertEquals(3, DrainPlan.victims(live, Collections.emptySet(), 99).size());
    assertFalse(DrainPlan.victims(live, Collections.emptySet(), 3).stream().anyMatch(h -> h.createdMs == 10));
  }
}
