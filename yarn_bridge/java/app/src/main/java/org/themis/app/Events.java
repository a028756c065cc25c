package org.themis.app;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * What happened, in order, until the child polls it.
 *
 * <p>YARN's callback threads put and never wait: a child that stopped polling makes the queue run full,
 * which ends the app, rather than stalling the heartbeat.
 */
final class Events {
  static final int EVENTS_MAX = 10_000;
  static final int BATCH_MAX = 500;
  static final int WAIT_MS_MAX = 1_000;

  private final BlockingQueue<Map<String, Object>> waiting = new LinkedBlockingQueue<>(EVENTS_MAX);
  private final Runnable whenFull;

  Events(Runnable whenFull) {
    this.whenFull = whenFull;
  }

  /** Pairs of key and value; the type comes first. Never blocks. */
  void put(String type, Object... pairs) {
    Map<String, Object> event = new LinkedHashMap<>();
    event.put("type", type);
    for (int i = 0; i < pairs.length; i += 2) {
      event.put((String) pairs[i], pairs[i + 1]);
    }
    if (!waiting.offer(event)) {
      whenFull.run();
    }
  }

  /** Waits up to {@code waitMs} (at most {@link #WAIT_MS_MAX}) for a first event, then takes what is there. */
  List<Map<String, Object>> take(int waitMs) throws InterruptedException {
    List<Map<String, Object>> batch = new ArrayList<>();
    Map<String, Object> first =
        waiting.poll(Math.max(0, Math.min(waitMs, WAIT_MS_MAX)), TimeUnit.MILLISECONDS);
    if (first != null) {
      batch.add(first);
      waiting.drainTo(batch, BATCH_MAX - 1);
    }
    return batch;
  }
}
