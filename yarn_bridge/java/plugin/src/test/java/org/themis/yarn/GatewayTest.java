package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ConnectException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class GatewayTest {
  private static final ObjectMapper JSON = new ObjectMapper();
  @TempDir
  Path temporary;
  private Gateway gateway;

  @AfterEach
  void close() {
    if (gateway != null) {
      gateway.close();
    }
  }

  private Gateway open(Path folder, String startId) {
    Gate gate = new Gate(new LeaseBook(10), new GpuLedger(), new Fallback(Fallback.Kind.CLOSED, 1_000), new Stamps());
    return Gateway.open(folder.toString(), startId, new EntryPoint(startId, gate, new Outbox(10), null, null, null));
  }

  private static JsonNode read(Path folder) throws IOException {
    return JSON.readTree(Files.readAllBytes(folder.resolve(Gateway.FILE_NAME)));
  }

  /** First line of the answer to Py4J's authentication and one call, or null where it hangs up. */
  private static String call(int port, String token) throws IOException {
    try (Socket socket = new Socket("127.0.0.1", port)) {
      socket.setSoTimeout(10_000);
      socket.getOutputStream().write(("A\n" + token + "\n").getBytes(StandardCharsets.UTF_8));
      BufferedReader answers = new BufferedReader(new InputStreamReader(socket.getInputStream(),
          StandardCharsets.UTF_8));
      if (!"!yv".equals(answers.readLine())) {
        return null;
      }
      socket.getOutputStream().write("c\nt\ncounters\ne\n".getBytes(StandardCharsets.UTF_8));
      return answers.readLine();
    }
  }

  private static boolean isListening(int port) throws IOException {
    try (Socket socket = new Socket("127.0.0.1", port)) {
      return true;
    } catch (ConnectException e) {
      return false;
    }
  }

  @Test
  void onlyTheOwnerFindsItAndOnlyTheTokenOpensIt() throws Exception {
    Path folder = temporary.resolve("a").resolve("gateway");
    gateway = open(folder, "s1");
    assertNotNull(gateway);
    assertEquals("rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(folder)));
    assertEquals("rw-------",
        PosixFilePermissions.toString(Files.getPosixFilePermissions(folder.resolve(Gateway.FILE_NAME))));
    JsonNode info = read(folder);
    assertEquals("127.0.0.1", info.get("host").textValue());
    assertEquals("s1", info.get("start_id").textValue());
    assertTrue(info.get("pid").longValue() > 0);
    String answer = call(info.get("port").intValue(), info.get("token").textValue());
    assertTrue(answer.startsWith("!yj"), answer);
    assertNull(call(info.get("port").intValue(), "x" + info.get("token").textValue().substring(1)));
  }

  @Test
  void closingTakesTheFileAndThePort() throws Exception {
    gateway = open(temporary.resolve("gateway"), "s1");
    int port = read(temporary.resolve("gateway")).get("port").intValue();
    gateway.close();
    assertFalse(Files.exists(temporary.resolve("gateway").resolve(Gateway.FILE_NAME)));
    // One connection may still slip into an accept that is just ending; Py4J does not answer it.
    long end = System.currentTimeMillis() + 10_000;
    while (isListening(port)) {
      assertTrue(System.currentTimeMillis() < end, "the port stays open");
      Thread.sleep(20);
    }
  }

  @Test
  void anOldActivationLeavesTheFileOfANewOne() throws Exception {
    Path folder = temporary.resolve("gateway");
    Gateway old = open(folder, "s1");
    String token = read(folder).get("token").textValue();
    gateway = open(folder, "s2");
    old.close();
    assertEquals("s2", read(folder).get("start_id").textValue());
    assertNotEquals(token, read(folder).get("token").textValue());
    try (Stream<Path> files = Files.list(folder)) {
      assertEquals(1, files.count(), "no temporary file stays");
    }
  }

  @Test
  void aFolderOpenToOthersIsRefused() throws Exception {
    Path folder = Files.createDirectory(temporary.resolve("open"),
        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwxr-x---")));
    assertNull(open(folder, "s1"));
    assertFalse(Files.exists(folder.resolve(Gateway.FILE_NAME)));
  }

  @Test
  void withoutAFolderThereIsNoGateway() {
    gateway = Gateway.open("", "s1", null);
    assertNull(gateway);
  }
}
