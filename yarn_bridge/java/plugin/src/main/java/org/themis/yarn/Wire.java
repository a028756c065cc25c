package org.themis.yarn;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.yarn.api.records.ApplicationId;

/**
 * JSON in and out: the proto3 mapping of the messages in cluster.proto with their original field names. Absent and null
 * mean the default; int64 is read as a number or a string and written as a number; unknown fields are ignored.
 */
final class Wire {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final JsonFactory FACTORY = MAPPER.getFactory();

  private Wire() {
  }

  /** What a message says cannot be used; the text says which field. */
  static final class BadMessage extends Exception {
    private static final long serialVersionUID = 1L;

    BadMessage(String message) {
      super(message);
    }
  }

  /** Writes one JSON object's fields. */
  interface Body {
    void write(JsonGenerator json) throws IOException;
  }

  /** One JSON object as UTF-8. */
  static byte[] bytes(Body body) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (JsonGenerator json = FACTORY.createGenerator(out)) {
      json.writeStartObject();
      body.write(json);
      json.writeEndObject();
    }
    return out.toByteArray();
  }

  static byte[] bytes(LeaseReply reply) throws IOException {
    return bytes(json -> {
      json.writeBooleanField("is_accepted", reply.isAccepted);
      json.writeStringField("reason", reply.reason);
      json.writeNumberField("epoch", reply.epoch);
      json.writeStringField("start_id", reply.startId);
      json.writeNumberField("seq", reply.seq);
    });
  }

  static LeaseUpdate leaseUpdate(byte[] message) throws BadMessage {
    JsonNode root = object(message);
    List<GateLease> leases = new ArrayList<>();
    for (JsonNode lease : list(root, "leases")) {
      leases.add(gateLease(lease));
    }
    List<LeaseUpdate.Drain> drains = new ArrayList<>();
    for (JsonNode drain : list(root, "drains")) {
      long killInMs = int64(drain, "kill_in_ms");
      if (killInMs < 0 || killInMs > Settings.KILL_IN_MS_MAX) {
        throw new BadMessage("kill_in_ms out of range: " + killInMs);
      }
      drains.add(new LeaseUpdate.Drain(names(drain, "lease_ids"), killInMs));
    }
    return new LeaseUpdate(int64(root, "epoch"), text(root, "start_id"), int64(root, "seq"), bool(root, "is_full"),
        leases, names(root, "removed_lease_ids"), drains, bool(root, "is_observing"));
  }

  private static GateLease gateLease(JsonNode lease) throws BadMessage {
    long gpus = int64(lease, "gpus");
    if (gpus < 1 || gpus > Integer.MAX_VALUE / Settings.LEASES_MAX) {
      throw new BadMessage("gpus of a lease out of range: " + gpus);
    }
    return new GateLease(name(lease.get("lease_id"), "lease_id"), applicationId(text(lease, "application_id")),
        name(lease.get("node"), "node"), (int) gpus, bool(lease, "is_draining"));
  }

  /** A parsed Diagnostics message. A value. */
  static final class Diagnostics {
    final String startId;
    final long epoch;
    final Map<ApplicationId, String> byApplication = new TreeMap<>();

    Diagnostics(String startId, long epoch) {
      this.startId = startId;
      this.epoch = epoch;
    }
  }

  static Diagnostics diagnostics(byte[] message) throws BadMessage {
    JsonNode root = object(message);
    Diagnostics diagnostics = new Diagnostics(text(root, "start_id"), int64(root, "epoch"));
    JsonNode map = root.get("by_application");
    if (map != null && !map.isNull()) {
      if (!map.isObject()) {
        throw new BadMessage("by_application is no object");
      }
      for (Iterator<String> keys = map.fieldNames(); keys.hasNext();) {
        String key = keys.next();
        diagnostics.byApplication.put(applicationId(key), text(map, key));
      }
    }
    return diagnostics;
  }

  private static ApplicationId applicationId(String text) throws BadMessage {
    try {
      return ApplicationId.fromString(text);
    } catch (IllegalArgumentException e) {
      throw new BadMessage("no application id: " + text);
    }
  }

  private static JsonNode object(byte[] message) throws BadMessage {
    JsonNode root;
    try {
      root = MAPPER.readTree(message);
    } catch (IOException e) {
      throw new BadMessage("no JSON");
    }
    if (root == null || !root.isObject()) {
      throw new BadMessage("no JSON object");
    }
    return root;
  }

  private static Iterable<JsonNode> list(JsonNode parent, String field) throws BadMessage {
    JsonNode value = parent.get(field);
    if (value == null || value.isNull()) {
      return new ArrayList<>();
    }
    if (!value.isArray()) {
      throw new BadMessage(field + " is no list");
    }
    return value;
  }

  private static List<String> names(JsonNode parent, String field) throws BadMessage {
    List<String> names = new ArrayList<>();
    for (JsonNode value : list(parent, field)) {
      names.add(name(value, field));
    }
    return names;
  }

  /** Names end up in log lines, so control characters are refused, and so are empty and huge ones. */
  private static String name(JsonNode value, String field) throws BadMessage {
    if (value == null || !value.isTextual() || value.textValue().isEmpty()
        || value.textValue().length() > Settings.NAME_CHARS_MAX
        || value.textValue().chars().anyMatch(Character::isISOControl)) {
      throw new BadMessage(field + " is no usable name");
    }
    return value.textValue();
  }

  private static String text(JsonNode parent, String field) throws BadMessage {
    JsonNode value = parent.get(field);
    if (value == null || value.isNull()) {
      return "";
    }
    if (!value.isTextual()) {
      throw new BadMessage(field + " is no text");
    }
    return value.textValue();
  }

  private static boolean bool(JsonNode parent, String field) throws BadMessage {
    JsonNode value = parent.get(field);
    if (value == null || value.isNull()) {
      return false;
    }
    if (!value.isBoolean()) {
      throw new BadMessage(field + " is neither true nor false");
    }
    return value.booleanValue();
  }

  private static long int64(JsonNode parent, String field) throws BadMessage {
    JsonNode value = parent.get(field);
    if (value == null || value.isNull()) {
      return 0;
    }
    if (value.isIntegralNumber() && value.canConvertToLong()) {
      return value.longValue();
    }
    try {
      if (value.isTextual()) {
        return Long.parseLong(value.textValue());
      }
    } catch (NumberFormatException e) {
      throw new BadMessage(field + " is no whole number: " + e.getMessage());
    }
    throw new BadMessage(field + " is no whole number");
  }
}
