package org.themis.yarn;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What changed and has perhaps not been told yet: keys only, each with the sequence number of its last change.
 *
 * <p>Writers are the ResourceManager's threads, so {@link #note} waits for nobody: it leaves the change in a queue, and
 * puts the queue in order only where it gets the lock at once; else whoever has the lock does, or the next reader. A
 * reader that sits on the lock for ever costs readers, not writers: past {@value #INTAKE_MAX} changes the rest is dropped
 * and told as a resync.
 */
class Outbox {
  /** Changes noted while somebody holds the lock; 3 MB of heap, about. */
  static final int INTAKE_MAX = 20_000;
  /** A reader waits so long for another one, which needs a millisecond. */
  static final long READ_WAIT_MS = 5_000;

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

  final ReentrantLock lock = new ReentrantLock();
  private final int max;
  private final Queue<Entry> intake = new ConcurrentLinkedQueue<>();
  private final AtomicInteger intakeSize = new AtomicInteger();
  private volatile boolean hasLost;
  private final Queue<Thread> waiters = new ConcurrentLinkedQueue<>();
  private final AtomicLong pokes = new AtomicLong();
  private volatile boolean isClosed;
  /** Written under the lock, as what follows is read and written. */
  private volatile long seq;
  private final Map<String, Long> seqByKey = new HashMap<>();
  private final TreeMap<Long, Entry> bySeq = new TreeMap<>();
  private long droppedSeq;

  Outbox(int max) {
    this.max = max;
  }

  void note(Kind kind, String id) {
    note(kind, id, null);
  }

  /**
   * Notes a change; a later one of the same entity replaces it. What has ended stays so: its tombstone is kept. Never
   * waits.
   */
  void note(Kind kind, String id, Object tombstone) {
    if (intakeSize.incrementAndGet() <= INTAKE_MAX) {
      intake.add(new Entry(kind, id, tombstone));
    } else {
      intakeSize.decrementAndGet();
      hasLost = true;
    }
    settle();
    wakeReaders();
  }

  /** The last number given out; all that was noted before has one. */
  long seq() throws InterruptedException {
    lockToRead();
    try {
      takeIn();
      return seq;
    } finally {
      lock.unlock();
      settle();
    }
  }

  /** What has ended and is not forgotten yet, oldest first. */
  List<Entry> ended(Kind kind) throws InterruptedException {
    lockToRead();
    try {
      takeIn();
      List<Entry> entries = new ArrayList<>();
      for (Entry entry : bySeq.values()) {
        if (entry.kind == kind && entry.tombstone != null) {
          entries.add(entry);
        }
      }
      return entries;
    } finally {
      lock.unlock();
      settle();
    }
  }

  /** Ends the waits that are on: there is something to tell that is no entity's change. Never waits. */
  void poke() {
    pokes.incrementAndGet();
    wakeReaders();
  }

  /**
   * Waits up to {@code waitMs} for a change after {@code afterSeq}, or for a poke. Holds nothing meanwhile.
   *
   * @throws InterruptedException where the waiting thread is told to stop
   */
  void await(long afterSeq, int waitMs) throws InterruptedException {
    long endNanos = System.nanoTime() + waitMs * 1_000_000L;
    long pokesBefore = pokes.get();
    Thread me = Thread.currentThread();
    waiters.add(me);
    try {
      while (afterSeq == seq && !hasIntake() && pokes.get() == pokesBefore && !isClosed) {
        long leftNanos = endNanos - System.nanoTime();
        if (leftNanos <= 0) {
          return;
        }
        LockSupport.parkNanos(this, leftNanos);
        if (Thread.interrupted()) {
          throw new InterruptedException();
        }
      }
    } finally {
      waiters.remove(me);
    }
  }

  /** Ends every wait: the activation is over. Never waits itself. */
  void close() {
    isClosed = true;
    wakeReaders();
  }

  /**
   * Up to {@code limit} changes after {@code afterSeq}; waits up to {@code waitMs} for a first one.
   *
   * @throws InterruptedException where the waiting thread is told to stop
   * @throws IllegalStateException where another reader does not let go
   */
  Batch changes(long afterSeq, int waitMs, int limit) throws InterruptedException {
    await(afterSeq, waitMs);
    lockToRead();
    try {
      takeIn();
      return batch(afterSeq, limit);
    } finally {
      lock.unlock();
      settle();
    }
  }

  /** For readers only. One that cannot have it gives up, so that readers do not heap up behind one that is stuck. */
  private void lockToRead() throws InterruptedException {
    if (!lock.tryLock(READ_WAIT_MS, TimeUnit.MILLISECONDS)) {
      throw new IllegalStateException("the outbox has been busy for " + READ_WAIT_MS + " ms");
    }
  }

  private Batch batch(long afterSeq, int limit) {
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

  private boolean hasIntake() {
    return hasLost || !intake.isEmpty();
  }

  private void wakeReaders() {
    for (Thread waiter : waiters) {
      LockSupport.unpark(waiter);
    }
  }

  /** Gives numbers to what was noted, where nobody has the lock; who has it comes here when letting go. */
  private void settle() {
    while (hasIntake() && lock.tryLock()) {
      try {
        takeIn();
      } finally {
        lock.unlock();
      }
    }
  }

  private void takeIn() {
    for (int i = 0; i < INTAKE_MAX; i++) {
      Entry entry = intake.poll();
      if (entry == null) {
        break;
      }
      intakeSize.decrementAndGet();
      takeIn(entry);
    }
    if (hasLost) {
      hasLost = false;
      bySeq.clear();
      seqByKey.clear();
      droppedSeq = ++seq;
    }
  }

  private void takeIn(Entry entry) {
    long number = seq + 1;
    Long old = seqByKey.put(key(entry), number);
    Entry before = old == null ? null : bySeq.remove(old);
    boolean keepsEnd = entry.tombstone == null && before != null && before.tombstone != null;
    bySeq.put(number, keepsEnd ? before : entry);
    seq = number;
    if (bySeq.size() > max) {
      Map.Entry<Long, Entry> oldest = bySeq.pollFirstEntry();
      droppedSeq = oldest.getKey();
      seqByKey.remove(key(oldest.getValue()));
    }
  }

  private static String key(Entry entry) {
    return entry.kind.name() + ' ' + entry.id;
  }
}
