package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.log4j.AppenderSkeleton;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.spi.LoggingEvent;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The named limits of the entry point and of the log. */
class LimitsTest {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Gate gate = new Gate(new LeaseBook(Settings.LEASES_MAX), new GpuLedger(),
      new Fallback(Fallback.Kind.CLOSED, 1_000), new Stamps());
  private final Outbox outbox = new Outbox(Settings.OUTBOX_MAX_DEFAULT);
  private final EntryPoint entryPoint = new EntryPoint("s", gate, outbox, new StateReader(null, gate.ledger),
      new DrainTimer(gate, null, () -> 0), null);
  private final List<String> logged = new ArrayList<>();
  private final AppenderSkeleton appender = new AppenderSkeleton() {
    @Override
    protected void append(LoggingEvent event) {
      logged.add(event.getRenderedMessage());
    }

    @Override
    public void close() {
      // Nothing is held.
    }

    @Override
    public boolean requiresLayout() {
      return false;
    }
  };
  private Level before;

  @BeforeEach
  void start() {
    gate.book.start("s");
    gate.fallback.start(0);
    Logger logger = Logger.getLogger(EntryPoint.class);
    before = logger.getLevel();
    logger.setLevel(Level.INFO);
    logger.addAppender(appender);
  }

  @AfterEach
  void stop() {
    Logger.getLogger(EntryPoint.class).removeAppender(appender);
    Logger.getLogger(EntryPoint.class).setLevel(before);
  }

  private JsonNode apply(String message) throws Exception {
    return JSON.readTree(entryPoint.apply(message.replace('\'', '"').getBytes(StandardCharsets.UTF_8)));
  }

  private static String full(int leases) {
    StringBuilder list = new StringBuilder();
    for (int i = 0; i < leases; i++) {
      list.append(i == 0 ? "" : ",").append("{'lease_id': 'l").append(i)
          .append("', 'application_id': 'application_1_0001', 'node': 'n', 'gpus': 1}");
    }
    return "{'start_id': 's', 'epoch': 1, 'seq': 1, 'is_full': true, 'leases': [" + list + "]}";
  }

  @Test
  void aMessageOrABookThatIsTooLargeIsRefusedWhole() throws Exception {
    assertEquals("TOO_LARGE",
        JSON.readTree(entryPoint.apply(new byte[Settings.MESSAGE_BYTES_MAX + 1])).get("reason").textValue());
    assertEquals("TOO_LARGE",
        JSON.readTree(entryPoint.diagnostics(new byte[Settings.MESSAGE_BYTES_MAX + 1])).get("reason").textValue());
    assertEquals("TOO_LARGE", apply(full(Settings.LEASES_MAX + 1)).get("reason").textValue());
    assertEquals(0, gate.book.size());
    assertTrue(apply(full(Settings.LEASES_MAX)).get("is_accepted").booleanValue());
  }

  @Test
  void oneUpdateLogsABoundedNumberOfLines() throws Exception {
    assertTrue(apply(full(Settings.LOG_LINES_PER_UPDATE_MAX + 7)).get("is_accepted").booleanValue());
    assertEquals(Settings.LOG_LINES_PER_UPDATE_MAX + 1, logged.size());
    assertTrue(logged.get(logged.size() - 1).contains("7 more lease changes"), logged.get(logged.size() - 1));
  }

  @Test
  void aFloodOfRefusalsIsToldOnceForEachReason() throws Exception {
    for (int i = 0; i < 1_000; i++) {
      apply("{'start_id': 'limits', 'epoch': 1}");
      apply("no JSON of ours " + i);
    }
    // Other tests of this JVM may have told of the same reason just before.
    assertTrue(logged.size() <= 2, logged.toString());
  }

  @Test
  void aPlaceThatFailsOverAndOverIsToldOnce() {
    assertTrue(Guard.mayLog("limits"));
    assertFalse(Guard.mayLog("limits"));
    assertFalse(Guard.run("limits", () -> {
      throw new IOException("again");
    }));
  }

  @Test
  void aLongListOfChangesIsToldInParts() throws Exception {
    for (int i = 1; i <= Settings.CHANGES_PER_REPORT_MAX + 1; i++) {
      String id = "container_1_0001_01_" + i;
      outbox.note(Outbox.Kind.CONTAINER, id,
          new StateReader.EndedContainer(id, "application_1_0001", "n", 1, false, 0, "", 0, 0));
    }
    JsonNode first = JSON.readTree(entryPoint.changes(0, 0));
    assertEquals(Settings.CHANGES_PER_REPORT_MAX, first.get("containers").size());
    JsonNode second = JSON.readTree(entryPoint.changes(first.get("seq").longValue(), 0));
    assertEquals(1, second.get("containers").size());
    assertFalse(second.get("needs_resync").booleanValue());
  }

  @Test
  @Timeout(60)
  void callersGiveUpBehindOneThatIsStuck() throws Exception {
    CountDownLatch has = new CountDownLatch(1);
    Thread stuck = new Thread(() -> {
      entryPoint.applying.lock();
      has.countDown();
    });
    stuck.start();
    has.await();
    IOException refusal = assertThrows(IOException.class, () -> entryPoint.apply(new byte[0]));
    assertTrue(refusal.getMessage().contains("another lease update"), refusal.getMessage());
  }
}
