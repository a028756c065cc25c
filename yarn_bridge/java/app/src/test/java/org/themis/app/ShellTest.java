package org.themis.app;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The launch script is imitated as a NodeManager writes it, and run by the real bash. */
final class ShellTest {
  private static final List<String> AWKWARD =
      Arrays.asList("plain", "two words", "it's", "\"quoted\"", "$HOME", "`id`", "back\\slash", "a;b|c&d>e", "*");

  @TempDir Path logs;

  private String runScript(String script) throws Exception {
    Process bash = new ProcessBuilder("/bin/bash", "-c", script).start();
    assertEquals(0, bash.waitFor());
    return new String(Files.readAllBytes(logs.resolve("stdout")), StandardCharsets.UTF_8);
  }

  @Test
  void everyWordArrivesAsItWas() throws Exception {
    List<String> words = new ArrayList<>(Arrays.asList("/usr/bin/printf", "%s\\n"));
    words.addAll(AWKWARD);
    String command = Shell.command(words).replace("<LOG_DIR>", logs.toString());
    assertEquals(String.join("\n", AWKWARD) + "\n", runScript("exec /bin/bash -c \"" + command + "\""));
  }

  @Test
  void everyVariableArrivesAsItWas() throws Exception {
    for (String value : AWKWARD) {
      String quoted = Shell.environment(Collections.singletonMap("THE_VALUE", value)).get("THE_VALUE");
      String script =
          "export THE_VALUE=\"" + quoted + "\"; printf '%s' \"$THE_VALUE\" > '" + logs.resolve("stdout") + "'";
      assertEquals(value, runScript(script));
    }
  }

  @Test
  void refusesWhatIsNoNameAndNoCommand() {
    assertThrows(
        IllegalArgumentException.class, () -> Shell.environment(Collections.singletonMap("A=B;rm", "x")));
    assertThrows(IllegalArgumentException.class, () -> Shell.command(Collections.emptyList()));
  }
}
