package org.themis.app;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

final class EventsTest {
  @Test
  void comeInOrderAndInBatchesOfALimit() throws Exception {
    Events events = new Events(() -> {});
    for (int i = 0; i < Events.BATCH_MAX + 3; i++) {
      events.put("started", "container_id", "c" + i);
    }
    List<Map<String, Object>> first = events.take(0);
    assertEquals(Events.BATCH_MAX, first.size());
    assertEquals("c0", first.get(0).get("container_id"));
    List<Map<String, Object>> second = events.take(0);
    assertEquals(3, second.size());
    assertEquals("c" + Events.BATCH_MAX, second.get(0).get("container_id"));
    assertTrue(events.take(1).isEmpty());
  }

  @Test
  void aChildThatNeverPollsEndsTheAppAndNotTheHeartbeat() {
    AtomicInteger ends = new AtomicInteger();
    Events events = new Events(ends::incrementAndGet);
    assertTimeoutPreemptively(
        Duration.ofSeconds(10),
        () -> {
          for (int i = 0; i < Events.EVENTS_MAX; i++) {
            events.put("started");
          }
          assertEquals(0, ends.get());
          events.put("started");
        });
    assertEquals(1, ends.get());
  }
}
