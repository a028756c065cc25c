package org.themis.app;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** JSON to and from plain maps: the only form in which the child and the application master talk. */
final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final TypeReference<Map<String, Object>> OBJECT =
      new TypeReference<Map<String, Object>>() {};

  private Json() {}

  static byte[] bytes(Object value) {
    try {
      return MAPPER.writeValueAsBytes(value);
    } catch (IOException err) {
      throw new IllegalStateException("a map of plain values must be writable as JSON", err);
    }
  }

  /** Parses one JSON object; anything else is an {@link IllegalArgumentException} that says so. */
  static Map<String, Object> object(byte[] json) {
    try {
      Map<String, Object> parsed = MAPPER.readValue(json, OBJECT);
      if (parsed == null) {
        throw new IllegalArgumentException("a JSON object was expected, not null");
      }
      return parsed;
    } catch (IOException err) {
      throw new IllegalArgumentException("not a JSON object: " + err.getMessage(), err);
    }
  }

  static long whole(Map<String, Object> from, String key, long otherwise) {
    Object value = from.get(key);
    if (value == null) {
      return otherwise;
    }
    if (!(value instanceof Integer || value instanceof Long)) {
      throw new IllegalArgumentException(key + ": a whole number was expected, not " + value);
    }
    return ((Number) value).longValue();
  }

  static boolean truth(Map<String, Object> from, String key, boolean otherwise) {
    Object value = from.get(key);
    if (value == null) {
      return otherwise;
    }
    if (!(value instanceof Boolean)) {
      throw new IllegalArgumentException(key + ": true or false was expected, not " + value);
    }
    return (Boolean) value;
  }

  static List<String> strings(Map<String, Object> from, String key) {
    List<String> found = new ArrayList<>();
    Object value = from.get(key);
    if (value == null) {
      return found;
    }
    if (!(value instanceof List)) {
      throw new IllegalArgumentException(key + ": a list was expected, not " + value);
    }
    for (Object item : (List<?>) value) {
      found.add(String.valueOf(item));
    }
    return found;
  }

  static Map<String, String> stringMap(Map<String, Object> from, String key) {
    Map<String, String> found = new TreeMap<>();
    Object value = from.get(key);
    if (value == null) {
      return found;
    }
    if (!(value instanceof Map)) {
      throw new IllegalArgumentException(key + ": an object was expected, not " + value);
    }
    for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
      found.put(String.valueOf(entry.getKey()), String.valueOf(entry.getValue()));
    }
    return found;
  }
}
