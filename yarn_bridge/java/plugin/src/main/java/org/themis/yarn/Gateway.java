package org.themis.yarn;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.Base64;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import py4j.GatewayServer;

/**
 * The Py4J server of one activation, and gateway.json, which tells the bridge how to reach it. Py4J is a full remote
 * shell into this JVM: it listens on loopback only and wants the token, which only the file's owner can read.
 */
final class Gateway {
  static final String FILE_NAME = "gateway.json";
  static final int TOKEN_BYTES = 32;
  static final long OPEN_TIMEOUT_MS = 10_000;
  private static final String HOST = "127.0.0.1";
  private static final Logger LOG = LoggerFactory.getLogger(Gateway.class);
  private static final FileAttribute<Set<PosixFilePermission>> OWNER_DIR =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
  private static final FileAttribute<Set<PosixFilePermission>> OWNER_FILE =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

  private final GatewayServer server;
  private final Path file;
  private final byte[] content;

  private Gateway(GatewayServer server, Path file, byte[] content) {
    this.server = server;
    this.file = file;
    this.content = content;
  }

  /**
   * Opens the server and writes the file. Null, with an error in the log, where that cannot be done: YARN then runs on
   * without an arbiter, and the gate does what it does when nobody leads.
   */
  static Gateway open(String dir, String startId, EntryPoint entryPoint) {
    GatewayServer server = null;
    try {
      if (dir.isEmpty()) {
        throw new IOException(Settings.GATEWAY_DIR + " is not set in yarn-site.xml");
      }
      Path folder = ownFolder(Paths.get(dir));
      byte[] random = new byte[TOKEN_BYTES];
      new SecureRandom().nextBytes(random);
      String token = Base64.getUrlEncoder().withoutPadding().encodeToString(random);
      server = new GatewayServer.GatewayServerBuilder(entryPoint).javaAddress(InetAddress.getByName(HOST)).javaPort(0)
          .authToken(token).build();
      listen(server);
      byte[] content = content(server.getListeningPort(), token, startId);
      Path file = folder.resolve(FILE_NAME);
      replace(file, content);
      LOG.info("Themis gateway listens on {}:{} start_id={} file={}", HOST, server.getListeningPort(), startId, file);
      return new Gateway(server, file, content);
    } catch (Exception e) {
      LOG.error("Themis has no gateway, so no arbiter can reach this ResourceManager: no new GPU containers until "
          + Settings.FALLBACK + " takes over after " + Settings.FALLBACK_AFTER_MS, e);
      if (server != null) {
        server.shutdown();
      }
      return null;
    }
  }

  void close() {
    server.shutdown();
    try {
      // A later activation, here or in another process, may have put its own file there.
      if (Files.exists(file) && Arrays.equals(Files.readAllBytes(file), content)) {
        Files.delete(file);
      }
    } catch (IOException e) {
      LOG.warn("Themis could not remove {}", file, e);
    }
  }

  /** Py4J's threads inherit daemon-ness from the one that starts them; others would keep a stopping JVM alive. */
  private static void listen(GatewayServer server) throws IOException, InterruptedException {
    Throwable[] failure = new Throwable[1];
    Thread starter = new Thread(() -> {
      try {
        server.start(true);
      } catch (Throwable t) {
        failure[0] = t;
      }
    }, "themis-gateway-starter");
    starter.setDaemon(true);
    starter.start();
    starter.join(OPEN_TIMEOUT_MS);
    if (starter.isAlive() || failure[0] != null || server.getListeningPort() <= 0) {
      throw new IOException("cannot listen on " + HOST, failure[0]);
    }
  }

  private static Path ownFolder(Path folder) throws IOException {
    try {
      if (folder.getParent() != null) {
        Files.createDirectories(folder.getParent());
      }
      Files.createDirectory(folder, OWNER_DIR);
    } catch (FileAlreadyExistsException e) {
      if (!Files.isDirectory(folder)) {
        throw new IOException(folder + " is no folder", e);
      }
    }
    Set<PosixFilePermission> rights = Files.getPosixFilePermissions(folder);
    for (PosixFilePermission right : rights) {
      if (!right.name().startsWith("OWNER_")) {
        throw new IOException(folder + " is open to others than its owner; chmod 700 it");
      }
    }
    return folder;
  }

  private static byte[] content(int port, String token, String startId) throws IOException {
    String name = ManagementFactory.getRuntimeMXBean().getName();
    long pid = Long.parseLong(name.substring(0, name.indexOf('@')));
    return Wire.bytes(json -> {
      json.writeStringField("host", HOST);
      json.writeNumberField("port", port);
      json.writeStringField("token", token);
      json.writeStringField("start_id", startId);
      json.writeNumberField("pid", pid);
    });
  }

  private static void replace(Path file, byte[] content) throws IOException {
    Path temporary = Files.createTempFile(file.getParent(), FILE_NAME, ".new", OWNER_FILE);
    try {
      // Who made the file just now is the user we run as: that must be the folder's owner too.
      if (!Files.getOwner(temporary, LinkOption.NOFOLLOW_LINKS).equals(Files.getOwner(file.getParent()))) {
        throw new IOException(file.getParent() + " belongs to another user");
      }
      Files.write(temporary, content);
      Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } finally {
      Files.deleteIfExists(temporary);
    }
  }
}
