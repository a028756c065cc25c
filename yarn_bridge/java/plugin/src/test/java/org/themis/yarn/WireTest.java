package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class WireTest {
  private static byte[] utf8(String text) {
    return text.replace('\'', '"').getBytes(StandardCharsets.UTF_8);
  }

  @Test
  void readsALeaseUpdate() throws Exception {
    LeaseUpdate update = Wire.leaseUpdate(utf8("{'epoch': '9007199254740993', 'start_id': 's', 'seq': 4, 'is_full': true,"
        + "'leases': [{'lease_id': 'l', 'application_id': 'application_17_0003', 'node': 'n', 'gpus': 2,"
        + "'is_draining': true}], 'removed_lease_ids': ['x'], 'drains': [{'lease_ids': ['l'], 'kill_in_ms': '60000'}],"
        + "'of_a_later_version': {'a': [1]}}"));
    assertEquals(9_007_199_254_740_993L, update.epoch);
    assertEquals("s", update.startId);
    assertEquals(4, update.seq);
    assertTrue(update.isFull);
    assertEquals("lease=l application=application_17_0003 node=n gpus=2", update.leases.get(0).toString());
    assertTrue(update.leases.get(0).isDraining);
    assertEquals("x", update.removedLeaseIds.get(0));
    assertEquals(60_000, update.drains.get(0).killInMs);
    assertFalse(update.isSignOfLife());
  }

  @Test
  void whatIsAbsentIsTheDefault() throws Exception {
    LeaseUpdate update = Wire.leaseUpdate(utf8("{'leases': null}"));
    assertEquals(0, update.epoch);
    assertEquals("", update.startId);
    assertTrue(update.isSignOfLife());
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "{", "[]", "7", "{'epoch': 1.5}", "{'epoch': 'x'}", "{'epoch': 99999999999999999999}",
      "{'is_full': 'yes'}", "{'leases': {}}", "{'leases': [{}]}", "{'leases': [7]}",
      "{'leases': [{'lease_id': 'l', 'application_id': 'app', 'node': 'n', 'gpus': 1}]}",
      "{'leases': [{'lease_id': 'l', 'application_id': 'application_1_0001', 'node': '', 'gpus': 1}]}",
      "{'leases': [{'lease_id': 'l', 'application_id': 'application_1_0001', 'node': 'n', 'gpus': 0}]}",
      "{'leases': [{'lease_id': 'l', 'application_id': 'application_1_0001', 'node': 'n', 'gpus': 2000000000}]}",
      "{'leases': [{'lease_id': 'a\\nb', 'application_id': 'application_1_0001', 'node': 'n', 'gpus': 1}]}",
      "{'drains': [{'lease_ids': ['l'], 'kill_in_ms': -1}]}", "{'removed_lease_ids': [1]}"})
  void refusesWhatItCannotRead(String text) {
    assertThrows(Wire.BadMessage.class, () -> Wire.leaseUpdate(utf8(text)));
  }

  @Test
  void readsDiagnostics() throws Exception {
    Wire.Diagnostics diagnostics =
        Wire.diagnostics(utf8("{'start_id': 's', 'epoch': 3, 'by_application': {'application_1_0002': 'waits'}}"));
    assertEquals("waits", diagnostics.byApplication.values().iterator().next());
    assertThrows(Wire.BadMessage.class, () -> Wire.diagnostics(utf8("{'by_application': {'x': 'y'}}")));
    assertThrows(Wire.BadMessage.class, () -> Wire.diagnostics(utf8("{'by_application': []}")));
  }

  @Test
  void readsWhetherTheArbiterLooksOn() throws Exception {
    assertTrue(Wire.leaseUpdate(utf8("{'is_full': true, 'is_observing': true}")).isObserving);
    assertFalse(Wire.leaseUpdate(utf8("{'is_full': true}")).isObserving);
    assertThrows(Wire.BadMessage.class, () -> Wire.leaseUpdate(utf8("{'is_observing': 1}")));
  }

  @Test
  void writesAReply() throws Exception {
    JsonNode reply = new ObjectMapper().readTree(Wire.bytes(new LeaseReply(false, LeaseReply.GAP, 1L << 60, "s", 7)));
    assertFalse(reply.get("is_accepted").booleanValue());
    assertEquals("GAP", reply.get("reason").textValue());
    assertEquals(1L << 60, reply.get("epoch").longValue());
    assertEquals("s", reply.get("start_id").textValue());
    assertEquals(7, reply.get("seq").longValue());
  }
}
