package org.themis.app;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** {@code --name value} pairs, each of a known name, then {@code --} and the words of a command. */
final class Options {
  private final Map<String, List<String>> values = new HashMap<>();
  private final List<String> command = new ArrayList<>();

  /** Throws {@link IllegalArgumentException} with one line for the user. */
  Options(String[] args, Set<String> known) {
    int at = 0;
    while (at < args.length && !args[at].equals("--")) {
      String name = args[at].startsWith("--") ? args[at].substring(2) : "";
      if (!known.contains(name)) {
        throw new IllegalArgumentException("unknown option " + args[at]);
      }
      if (at + 1 >= args.length) {
        throw new IllegalArgumentException(args[at] + " needs a value");
      }
      values.computeIfAbsent(name, any -> new ArrayList<>()).add(args[at + 1]);
      at += 2;
    }
    if (at < args.length) {
      command.addAll(Arrays.asList(args).subList(at + 1, args.length));
    }
  }

  /** The last one given. */
  String text(String name, String otherwise) {
    List<String> given = values.get(name);
    return given == null ? otherwise : given.get(given.size() - 1);
  }

  int whole(String name, int otherwise) {
    String given = text(name, null);
    if (given == null) {
      return otherwise;
    }
    try {
      return Integer.parseInt(given);
    } catch (NumberFormatException err) {
      throw new IllegalArgumentException("--" + name + ": a whole number was expected, not " + given);
    }
  }

  List<String> all(String name) {
    return values.getOrDefault(name, new ArrayList<>());
  }

  List<String> command() {
    return command;
  }
}
