package org.themis.yarn;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * What changed and has perhaps not been told yet: keys only, each with the sequence number of its last change. Writers
 * are the ResourceManager's threads, so every hold of the lock is short: reading is bounded by the size of one report.
 */
final class Outbox {
  enum Kind { NODE, APPLICATION, CONTAINER }

  /** Names one entity. {@code tombstone}, where set, is its last state: the ResourceManager forgets ended things. */
  static final class Entry {
    final Kind kind;
    final String id;
    final Object tombstone;

    Entry(Kind kind, String id, Object tombstone) {
      this.kind = kind;
      this.id = id;
      this.tombstone = tombstone;
    }
  }

  /** Changes after a sequence number, oldest first. */
  static final class Batch {
    final long seq;
    final boolean needsResync;
    final List<Entry> entries;

    Batch(long seq, boolean needsResync, List<Entry> entries) {
      this.seq = seq;
      this.needsResync = needsResync;
      this.entries = entries;
    }
  }

  private final int max;
  private final Map<String, Long> seqByKey = new HashMap<>();
  private final TreeMap<Long, Entry> bySeq = new TreeMap<>();
  private long seq;
  private long droppedSeq;
  private long pokes;
  private boolean isClosed;

  Outbox(int max) {
    this.max = max;
  }

  void note(Kind kind, String id) {
    note(kind, id, null);
  }

  /** Notes a change; a later one of the same entity replaces it. What has ended stays so: its tombstone is kept. */
  synchronized void note(Kind kind, String id, Object tombstone) {
    Long old = seqByKey.put(kind.name() + ' ' + id, ++seq);
    Entry before = old == null ? null : bySeq.remove(old);
    Object end = tombstone == null && before != null ? before.tombstone : tombstone;
    bySeq.put(seq, new Entry(kind, id, end));
    if (bySeq.size() > max) {
      Map.Entry<Long, Entry> oldest = bySeq.pollFirstEntry();
      droppedSeq = oldest.getKey();
      seqByKey.remove(oldest.getValue().kind.name() + ' ' + oldest.getValue().id);
    }
    notifyAll();
  }

  synchronized long seq() {
    return seq;
  }

  /** Ends the waits that are on: there is something to tell that is no entity's change. */
  synchronized void poke() {
    pokes++;
    notifyAll();
  }

  /**
   * Waits up to {@code waitMs} for a change after {@code afterSeq}, or for a poke.
   *
   * @throws InterruptedException where the waiting thread is told to stop
   */
  synchronized void await(long afterSeq, int waitMs) throws InterruptedException {
    long endNanos = System.nanoTime() + waitMs * 1_000_000L;
    long pokesBefore = pokes;
    while (afterSeq == seq && pokes == pokesBefore && !isClosed) {
      long leftMs = (endNanos - System.nanoTime() + 999_999) / 1_000_000;
      if (leftMs <= 0) {
        return;
      }
      wait(leftMs);
    }
  }

  /** Ends every wait: the activation is over. */
  synchronized void close() {
    isClosed = true;
    notifyAll();
  }

  /**
   * Up to {@code limit} changes after {@code afterSeq}; waits up to {@code waitMs} for a first one.
   *
   * @throws InterruptedException where the waiting thread is told to stop
   */
  synchronized Batch changes(long afterSeq, int waitMs, int limit) throws InterruptedException {
    await(afterSeq, waitMs);
    // A number that we never gave out is from another activation.
    if (afterSeq < droppedSeq || afterSeq > seq) {
      return new Batch(seq, true, new ArrayList<>());
    }
    List<Entry> entries = new ArrayList<>();
    long last = seq;
    for (Map.Entry<Long, Entry> change : bySeq.tailMap(afterSeq, false).entrySet()) {
      if (entries.size() == limit) {
        break;
      }
      entries.add(change.getValue());
      last = change.getKey();
    }
    return new Batch(entries.size() == limit ? last : seq, false, entries);
  }
}
