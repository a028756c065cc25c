package org.themis.app;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

final class OptionsTest {
  private static final Set<String> KNOWN = new HashSet<>(Arrays.asList("name", "env", "attempts"));

  private static Options parse(String... args) {
    return new Options(args, KNOWN);
  }

  @Test
  void splitsOptionsFromTheCommand() {
    Options options = parse("--name", "a", "--env", "X=1", "--env", "Y=2", "--", "python", "--", "--name", "b");
    assertEquals("a", options.text("name", "none"));
    assertEquals(Arrays.asList("X=1", "Y=2"), options.all("env"));
    assertEquals(Arrays.asList("python", "--", "--name", "b"), options.command());
    assertEquals(2, options.whole("attempts", 2));
  }

  @Test
  void saysWhatIsWrong() {
    assertEquals(
        "unknown option --nmae",
        assertThrows(IllegalArgumentException.class, () -> parse("--nmae", "a")).getMessage());
    assertEquals(
        "--name needs a value",
        assertThrows(IllegalArgumentException.class, () -> parse("--name")).getMessage());
    assertThrows(IllegalArgumentException.class, () -> parse("--attempts", "two").whole("attempts", 1));
  }
}
