package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class OutboxTest {
  private static final int MAX = 3;
  private final Outbox outbox = new Outbox(MAX);

  @Test
  void coalescesChangesOfOneEntity() throws Exception {
    for (int i = 0; i < 100; i++) {
      outbox.note(Outbox.Kind.NODE, "n1");
    }
    outbox.note(Outbox.Kind.APPLICATION, "n1");
    Outbox.Batch batch = outbox.changes(0, 0, 10);
    assertEquals(2, batch.entries.size());
    assertEquals(101, batch.seq);
    assertEquals(0, outbox.changes(101, 0, 10).entries.size());
  }

  @Test
  void whatHasEndedStaysSo() throws Exception {
    Object end = new Object();
    outbox.note(Outbox.Kind.CONTAINER, "c1");
    outbox.note(Outbox.Kind.CONTAINER, "c1", end);
    outbox.note(Outbox.Kind.CONTAINER, "c1");
    Outbox.Batch batch = outbox.changes(0, 0, 10);
    assertEquals(1, batch.entries.size());
    assertSame(end, batch.entries.get(0).tombstone);
  }

  @Test
  void whoFallsBehindIsToldToResync() throws Exception {
    for (int i = 1; i <= MAX + 2; i++) {
      outbox.note(Outbox.Kind.NODE, "n" + i);
    }
    assertTrue(outbox.changes(1, 0, 10).needsResync, "2 was dropped");
    Outbox.Batch batch = outbox.changes(2, 0, 10);
    assertFalse(batch.needsResync);
    assertEquals(MAX, batch.entries.size());
    assertTrue(outbox.changes(99, 0, 10).needsResync, "a number that was never given out");
  }

  @Test
  void tellsALongListInParts() throws Exception {
    outbox.note(Outbox.Kind.NODE, "n1");
    outbox.note(Outbox.Kind.NODE, "n2");
    outbox.note(Outbox.Kind.NODE, "n3");
    Outbox.Batch first = outbox.changes(0, 0, 2);
    assertEquals(2, first.entries.size());
    assertEquals(2, first.seq);
    Outbox.Batch second = outbox.changes(first.seq, 0, 2);
    assertEquals("n3", second.entries.get(0).id);
    assertEquals(3, second.seq);
  }

  @Test
  void waitsForTheFirstChangeAndNoLonger() throws Exception {
    ExecutorService other = Executors.newSingleThreadExecutor();
    try {
      long began = System.nanoTime();
      assertEquals(0, outbox.changes(0, 50, 10).entries.size());
      assertTrue(System.nanoTime() - began >= 45_000_000L, "an idle poll lasts as long as it was told");
      Callable<Outbox.Batch> poll = () -> outbox.changes(0, 60_000, 10);
      Future<Outbox.Batch> waiting = other.submit(poll);
      outbox.note(Outbox.Kind.NODE, "n1");
      assertEquals("n1", waiting.get(10, TimeUnit.SECONDS).entries.get(0).id);
      Future<Outbox.Batch> idle = other.submit(() -> outbox.changes(1, 60_000, 10));
      outbox.close();
      assertEquals(0, idle.get(10, TimeUnit.SECONDS).entries.size());
    } finally {
      other.shutdownNow();
    }
  }

  @Test
  void aPokeEndsAWaitThatIsOnAndChangesNothing() throws Exception {
    ExecutorService other = Executors.newSingleThreadExecutor();
    try {
      Future<Outbox.Batch> waiting = other.submit(() -> outbox.changes(0, 60_000, 10));
      while (!waiting.isDone()) {
        outbox.poke();
        Thread.sleep(5);
      }
      assertEquals(0, waiting.get(10, TimeUnit.SECONDS).seq);
    } finally {
      other.shutdownNow();
    }
  }
}
