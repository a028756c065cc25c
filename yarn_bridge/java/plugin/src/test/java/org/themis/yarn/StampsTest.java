package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class StampsTest {
  private final Stamps stamps = new Stamps();

  @Test
  void anUpdateCountsAtOnceWhereNothingIsOnItsWay() {
    assertEquals(0, stamps.current().seq);
    stamps.applied(3, 7);
    assertEquals(3, stamps.current().epoch);
    assertEquals(7, stamps.current().seq);
  }

  @Test
  void anUpdateWaitsForThePlacementsThatBeganBeforeItAndForNoOthers() {
    stamps.applied(1, 1);
    long before = stamps.begin();
    stamps.applied(1, 2);
    long after = stamps.begin();
    assertEquals(1, stamps.current().seq);
    stamps.land(before);
    assertEquals(2, stamps.current().seq);
    stamps.land(after);
    assertEquals(2, stamps.current().seq);
  }

  @Test
  void aLaterUpdateWaitsForWhatTheEarlierOneWaitedFor() {
    long before = stamps.begin();
    stamps.applied(1, 1);
    stamps.applied(1, 2);
    assertEquals(0, stamps.current().seq);
    stamps.land(before);
    assertEquals(2, stamps.current().seq);
  }

  @Test
  void aRefusedProposalHasNoFlight() {
    stamps.land(Stamps.NO_FLIGHT);
    stamps.applied(1, 1);
    assertEquals(1, stamps.current().seq);
  }
}
