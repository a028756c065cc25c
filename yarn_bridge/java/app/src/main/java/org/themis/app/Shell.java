package org.themis.app;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.yarn.api.ApplicationConstants;

/**
 * Quoting for a NodeManager's launch script.
 *
 * <p>The script runs {@code exec /bin/bash -c "<command>"} and {@code export KEY="<value>"}: whatever we
 * hand over is read once inside double quotes, and a command then once more by the inner shell.
 */
final class Shell {
  private Shell() {}

  /** The words as one command whose process replaces the shell and whose output goes to the container's logs. */
  static String command(List<String> words) {
    if (words.isEmpty()) {
      throw new IllegalArgumentException("a command needs at least one word");
    }
    StringBuilder line = new StringBuilder("exec");
    for (String word : words) {
      line.append(' ').append(insideDoubleQuotes(singleQuoted(word)));
    }
    line.append(" 1>").append(ApplicationConstants.LOG_DIR_EXPANSION_VAR).append("/stdout");
    line.append(" 2>").append(ApplicationConstants.LOG_DIR_EXPANSION_VAR).append("/stderr");
    return line.toString();
  }

  static Map<String, String> environment(Map<String, String> plain) {
    Map<String, String> quoted = new TreeMap<>();
    for (Map.Entry<String, String> entry : plain.entrySet()) {
      if (!entry.getKey().matches("[A-Za-z_][A-Za-z0-9_]*")) {
        throw new IllegalArgumentException("not a name of an environment variable: " + entry.getKey());
      }
      quoted.put(entry.getKey(), insideDoubleQuotes(entry.getValue()));
    }
    return quoted;
  }

  private static String singleQuoted(String word) {
    return "'" + word.replace("'", "'\\''") + "'";
  }

  private static String insideDoubleQuotes(String text) {
    return text.replaceAll("([\\\\\"$`])", "\\\\$1");
  }
}
