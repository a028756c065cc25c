package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SettingsTest {
  @Test
  void defaults() {
    Settings settings = Settings.from(new Configuration(false));
    assertEquals(Fallback.Kind.PASS_THROUGH, settings.fallback());
    assertEquals(120_000, settings.fallbackAfterMs());
    assertEquals(20_000, settings.outboxMax());
    assertEquals("", settings.gatewayDir());
  }

  @ParameterizedTest
  @CsvSource({"themis.fallback,open", "themis.fallback.after-ms,-1", "themis.fallback.after-ms,2 min",
      "themis.outbox.max,0", "themis.outbox.max,99999999999"})
  void anUnusableValueIsNamed(String key, String value) {
    Configuration conf = new Configuration(false);
    conf.set(key, value);
    Exception refusal = assertThrows(IllegalArgumentException.class, () -> Settings.from(conf));
    assertTrue(refusal.getMessage().startsWith(key + " must be "), refusal.getMessage());
    assertTrue(refusal.getMessage().endsWith(value), refusal.getMessage());
  }
}
