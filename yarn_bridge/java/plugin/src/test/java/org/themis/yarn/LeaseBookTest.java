package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class LeaseBookTest {
  private static final ApplicationId APP = ApplicationId.newInstance(1_000, 1);
  private static final ApplicationId OTHER = ApplicationId.newInstance(1_000, 2);
  private static final int MAX = 4;
  private final LeaseBook book = new LeaseBook(MAX);

  @BeforeEach
  void start() {
    book.start("s1");
  }

  private static GateLease lease(String id, ApplicationId app, String node) {
    return new GateLease(id, app, node, 1, false);
  }

  private LeaseReply full(long epoch, long seq, GateLease... leases) {
    return apply("s1", epoch, seq, true, Arrays.asList(leases), Collections.emptyList());
  }

  private LeaseReply delta(long epoch, long seq, GateLease... leases) {
    return apply("s1", epoch, seq, false, Arrays.asList(leases), Collections.emptyList());
  }

  private LeaseReply apply(String startId, long epoch, long seq, boolean isFull, List<GateLease> leases,
      List<String> removed) {
    return book.apply(new LeaseUpdate(epoch, startId, seq, isFull, leases, removed, new ArrayList<>(), false)).reply;
  }

  private LeaseBook.Outcome drain(long seq, long killInMs, String... ids) {
    LeaseUpdate.Drain drain = new LeaseUpdate.Drain(Arrays.asList(ids), killInMs);
    return book.apply(new LeaseUpdate(1, "s1", seq, false, Collections.emptyList(), Collections.emptyList(),
        Collections.singletonList(drain), false));
  }

  @Test
  void countsLeasesByApplicationAndNode() {
    assertTrue(full(1, 7, lease("a", APP, "n1"), lease("b", APP, "n1"), lease("c", OTHER, "n1")).isAccepted);
    assertEquals(2, book.allowed(APP, "n1"));
    assertEquals(1, book.allowed(OTHER, "n1"));
    assertEquals(0, book.allowed(APP, "n2"));
  }

  @Test
  void onlyAFullUpdateSaysWhetherTheArbiterLooksOn() {
    assertTrue(observing(1, true, true).isAccepted);
    assertTrue(book.isObserving());
    assertTrue(delta(1, 2, lease("a", APP, "n1")).isAccepted);
    assertTrue(book.isObserving(), "a change says nothing about it");
    assertTrue(observing(3, true, false).isAccepted);
    assertFalse(book.isObserving());
    assertTrue(observing(4, false, true).isAccepted);
    assertFalse(book.isObserving(), "it counts with is_full only");
    assertTrue(observing(5, true, true).isAccepted);
    book.start("s2");
    assertFalse(book.isObserving());
  }

  private LeaseReply observing(long seq, boolean isFull, boolean isObserving) {
    return book.apply(new LeaseUpdate(1, "s1", seq, isFull, Collections.singletonList(lease("z", APP, "n9")),
        Collections.emptyList(), Collections.emptyList(), isObserving)).reply;
  }

  @Test
  void refusesAnotherActivation() {
    LeaseReply reply = apply("s0", 9, 1, true, Collections.singletonList(lease("a", APP, "n1")),
        Collections.emptyList());
    assertEquals(LeaseReply.WRONG_START, reply.reason);
    assertEquals("s1", reply.startId);
    assertEquals(0, reply.epoch, "a message for another activation must not raise the fence");
    assertEquals(0, book.allowed(APP, "n1"));
  }

  @Test
  void refusesOldEpochs() {
    full(5, 1);
    assertEquals(LeaseReply.OLD_EPOCH, full(4, 9, lease("a", APP, "n1")).reason);
    assertTrue(full(5, 1).isAccepted);
    assertEquals(5, full(3, 1).epoch);
  }

  @Test
  void deltasNeedAFullUpdateInTheirEpoch() {
    assertEquals(LeaseReply.GAP, delta(1, 1, lease("a", APP, "n1")).reason);
    full(1, 1);
    assertEquals(LeaseReply.GAP, delta(2, 2, lease("a", APP, "n1")).reason);
    assertEquals(LeaseReply.OLD_EPOCH, delta(1, 2, lease("a", APP, "n1")).reason, "the fence went up with the GAP");
    assertFalse(delta(2, 3, lease("a", APP, "n1")).isAccepted);
    assertEquals(0, book.allowed(APP, "n1"));
  }

  @Test
  void sequenceRisesByOne() {
    full(1, 10);
    assertEquals(LeaseReply.GAP, delta(1, 12, lease("a", APP, "n1")).reason);
    assertEquals(LeaseReply.GAP, delta(1, 10, lease("a", APP, "n1")).reason);
    assertEquals(11, delta(1, 11, lease("a", APP, "n1")).seq);
    assertEquals(1, book.allowed(APP, "n1"));
    assertEquals(3, full(1, 3).seq, "a full update starts anew");
    assertEquals(0, book.allowed(APP, "n1"));
  }

  @Test
  void signOfLifeKeepsTheSequence() {
    assertTrue(delta(1, 0).isAccepted, "before the first full update too");
    assertFalse(book.hasFull());
    full(1, 10);
    assertEquals(10, delta(1, 10).seq);
    assertEquals(11, delta(1, 11).seq);
    assertEquals(LeaseReply.GAP, delta(1, 13).reason);
  }

  @Test
  void drainingLeasesCountNoMore() {
    full(1, 1, lease("a", APP, "n1"), lease("b", APP, "n1"));
    LeaseBook.Changes changes = drain(2, 500, "a", "unknown").changes;
    assertEquals(1, book.allowed(APP, "n1"));
    assertEquals(1, changes.drained.size());
    assertEquals(500L, changes.drained.values().iterator().next());
    assertTrue(delta(1, 3, lease("a", APP, "n1")).isAccepted, "given back");
    assertEquals(2, book.allowed(APP, "n1"));
  }

  @Test
  void tellsWhatChanged() {
    full(1, 1, lease("a", APP, "n1"), lease("b", APP, "n1"));
    LeaseBook.Changes changes = book.apply(new LeaseUpdate(1, "s1", 2, true,
        Arrays.asList(lease("b", APP, "n1"), lease("c", APP, "n2")), Collections.emptyList(),
        Collections.emptyList(), false)).changes;
    assertEquals(1, changes.granted.size());
    assertEquals("c", changes.granted.get(0).leaseId);
    assertEquals(1, changes.removed.size());
    assertEquals("a", changes.removed.get(0).leaseId);
  }

  @Test
  void tooManyLeasesChangeNothing() {
    full(1, 1, lease("a", APP, "n1"));
    GateLease[] many = new GateLease[MAX];
    for (int i = 0; i < MAX; i++) {
      many[i] = lease("x" + i, OTHER, "n1");
    }
    LeaseReply reply = delta(1, 2, many);
    assertEquals(LeaseReply.TOO_LARGE, reply.reason);
    assertEquals(1, reply.seq);
    assertEquals(0, book.allowed(OTHER, "n1"));
    assertTrue(delta(1, 2, lease("b", APP, "n1")).isAccepted);
  }

  @Test
  void aNewActivationForgets() {
    full(9, 1, lease("a", APP, "n1"));
    book.start("s2");
    assertEquals(0, book.allowed(APP, "n1"));
    assertFalse(book.hasFull());
    assertTrue(apply("s2", 1, 1, true, Collections.emptyList(), Collections.emptyList()).isAccepted);
  }
}
