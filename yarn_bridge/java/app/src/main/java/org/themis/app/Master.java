package org.themis.app;

import java.net.InetAddress;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.yarn.api.ApplicationConstants;
import org.apache.hadoop.yarn.api.protocolrecords.RegisterApplicationMasterResponse;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.FinalApplicationStatus;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import py4j.GatewayServer;

/**
 * A thin application master: it speaks YARN's protocols for a child process that holds all the sense.
 *
 * <p>The arguments are the child's command. The child finds us through {@code THEMIS_AM_ADDRESS} and
 * {@code THEMIS_AM_TOKEN}, and calls {@link Calls} over Py4J; we never call the child. Its standard input is a
 * pipe that we hold: when it closes, we are gone and the child must end. When the child ends, so does the app.
 */
public final class Master {
  static final long LAST_WORDS_MS = 2_000;
  static final int EXIT_LOST = 65;
  private static final int TOKEN_BYTES = 24;

  private final AtomicBoolean over = new AtomicBoolean();
  private volatile Process child;
  private volatile String overBecause = "";

  private Master() {}

  public static void main(String[] command) throws Exception {
    if (command.length == 0) {
      System.err.println("usage: Master COMMAND [WORD...]   (started by YARN, see Submit)");
      System.exit(2);
    }
    int code;
    try {
      code = new Master().run(Arrays.asList(command));
    } catch (Exception err) {
      err.printStackTrace();
      code = 1;
    }
    // Client libraries leave threads behind that are not daemons.
    System.exit(code);
  }

  private int run(List<String> command) throws Exception {
    Events events = new Events(() -> end("the child stopped polling its events"));
    Yarn yarn =
        new Yarn(new YarnConfiguration(), events, () -> end("the ResourceManager wants this attempt gone"));
    Calls calls = new Calls(yarn, events, hello(yarn.register()));
    String token = randomToken();
    GatewayServer gateway =
        new GatewayServer.GatewayServerBuilder(calls)
            .javaAddress(InetAddress.getLoopbackAddress())
            .javaPort(0)
            .authToken(token)
            .build();
    gateway.start();
    int code = runChild(command, "127.0.0.1:" + gateway.getListeningPort(), token);
    if (over.get()) {
      // Not unregistered, so YARN may start another attempt, which goes on from the checkpoint.
      System.err.println("Master: ended without a result: " + overBecause);
      return EXIT_LOST;
    }
    FinalApplicationStatus status = calls.status();
    String diagnostics = calls.diagnostics();
    if (code != 0 || status == null) {
      status = FinalApplicationStatus.FAILED;
      diagnostics = ("the child exited with status " + code + ". " + diagnostics).trim();
    }
    yarn.unregister(status, diagnostics);
    return status == FinalApplicationStatus.SUCCEEDED ? 0 : 1;
  }

  private int runChild(List<String> command, String address, String token) throws Exception {
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().put("THEMIS_AM_ADDRESS", address);
    builder.environment().put("THEMIS_AM_TOKEN", token);
    builder.redirectOutput(ProcessBuilder.Redirect.INHERIT);
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    Process started = builder.start();
    Runtime.getRuntime().addShutdownHook(new Thread(started::destroyForcibly));
    child = started;
    if (over.get()) {
      started.destroyForcibly();
    }
    return started.waitFor();
  }

  /** The child hears of it through the shutdown event or not at all; either way it has a bounded time left. */
  private void end(String why) {
    if (!over.compareAndSet(false, true)) {
      return;
    }
    overBecause = why;
    Process running = child;
    if (running == null) {
      return;
    }
    Thread killer =
        new Thread(
            () -> {
              try {
                running.waitFor(LAST_WORDS_MS, TimeUnit.MILLISECONDS);
              } catch (InterruptedException err) {
                Thread.currentThread().interrupt();
              }
              running.destroyForcibly();
            },
            "end-of-child");
    killer.setDaemon(true);
    killer.start();
  }

  private static Map<String, Object> hello(RegisterApplicationMasterResponse registered) {
    ContainerId self =
        ContainerId.fromString(System.getenv(ApplicationConstants.Environment.CONTAINER_ID.name()));
    Map<String, Object> hello = new LinkedHashMap<>();
    hello.put("application_id", self.getApplicationAttemptId().getApplicationId().toString());
    hello.put("attempt", self.getApplicationAttemptId().getAttemptId());
    hello.put("container_id", self.toString());
    hello.put("max_memory_mb", registered.getMaximumResourceCapability().getMemorySize());
    return hello;
  }

  private static String randomToken() {
    byte[] bytes = new byte[TOKEN_BYTES];
    new SecureRandom().nextBytes(bytes);
    StringBuilder hex = new StringBuilder();
    for (byte each : bytes) {
      hex.append(String.format("%02x", each));
    }
    return hex.toString();
  }
}
