package org.themis.app;

import java.io.File;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hadoop.yarn.api.ApplicationConstants;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ApplicationSubmissionContext;
import org.apache.hadoop.yarn.api.records.ContainerLaunchContext;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.client.api.YarnClient;
import org.apache.hadoop.yarn.client.api.YarnClientApplication;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import py4j.GatewayServer;

/**
 * Submits an app through YARN's client protocol and prints one JSON line: application_id, name, queue, tags.
 *
 * <p>Jars are named by their paths, which every node must have: no file system is needed for staging.
 */
public final class Submit {
  private static final Set<String> KNOWN =
      new HashSet<>(
          Arrays.asList(
              "name", "queue", "tags", "am-memory-mb", "am-vcores", "am-heap-mb", "attempts", "java",
              "app-jar", "py4j-jar", "env"));
  private static final String USAGE =
      "usage: Submit [--name N] [--queue Q] [--tags A,B] [--am-memory-mb 256] [--am-vcores 1] [--am-heap-mb 64]"
          + " [--attempts 2] [--java JAVA] [--app-jar JAR] [--py4j-jar JAR] [--env KEY=VALUE ...] -- COMMAND [WORD...]";

  private Submit() {}

  public static void main(String[] args) throws Exception {
    Options options;
    try {
      options = new Options(args, KNOWN);
      if (options.command().isEmpty()) {
        throw new IllegalArgumentException("the child's command is missing; it follows --");
      }
      environment(options);
    } catch (IllegalArgumentException err) {
      System.err.println("Submit: " + err.getMessage() + "\n" + USAGE);
      System.exit(2);
      return;
    }
    submit(options);
    System.exit(0);
  }

  private static void submit(Options options) throws Exception {
    YarnConfiguration conf = new YarnConfiguration();
    YarnClient client = YarnClient.createYarnClient();
    client.init(conf);
    client.start();
    YarnClientApplication application = client.createApplication();
    ApplicationSubmissionContext context = application.getApplicationSubmissionContext();
    Set<String> tags = new LinkedHashSet<>();
    for (String tag : options.text("tags", "").split(",")) {
      if (!tag.trim().isEmpty()) {
        tags.add(tag.trim());
      }
    }
    context.setApplicationName(options.text("name", "themis-app"));
    context.setApplicationType("THEMIS");
    context.setQueue(options.text("queue", YarnConfiguration.DEFAULT_QUEUE_NAME));
    context.setApplicationTags(tags);
    context.setPriority(Priority.newInstance(0));
    context.setMaxAppAttempts(options.whole("attempts", 2));
    context.setResource(
        Resource.newInstance(options.whole("am-memory-mb", 256), options.whole("am-vcores", 1)));
    context.setAMContainerSpec(launch(conf, options));
    ApplicationId id = client.submitApplication(context);
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("application_id", id.toString());
    line.put("name", context.getApplicationName());
    line.put("queue", context.getQueue());
    line.put("tags", tags);
    System.out.println(new String(Json.bytes(line), StandardCharsets.UTF_8));
  }

  private static ContainerLaunchContext launch(YarnConfiguration conf, Options options) throws Exception {
    List<String> classpath = new ArrayList<>();
    classpath.add(new File(options.text("app-jar", jarOf(Submit.class))).getAbsolutePath());
    classpath.add(new File(options.text("py4j-jar", jarOf(GatewayServer.class))).getAbsolutePath());
    for (String entry :
        conf.getTrimmedStrings(
            YarnConfiguration.YARN_APPLICATION_CLASSPATH,
            YarnConfiguration.DEFAULT_YARN_CROSS_PLATFORM_APPLICATION_CLASSPATH)) {
      classpath.add(entry);
    }
    // Not quoted as our own values are: the cluster's entries may hold {{VARIABLES}} that the node fills in.
    Map<String, String> environment = Shell.environment(environment(options));
    environment.put("CLASSPATH", String.join(ApplicationConstants.CLASS_PATH_SEPARATOR, classpath));
    List<String> words = new ArrayList<>();
    words.add(options.text("java", System.getProperty("java.home") + "/bin/java"));
    words.add("-Xmx" + options.whole("am-heap-mb", 64) + "m");
    words.add("-XX:+UseSerialGC");
    words.add("-XX:TieredStopAtLevel=1");
    words.add("-Dproc_themis_app");
    words.add(Master.class.getName());
    words.addAll(options.command());
    return ContainerLaunchContext.newInstance(
        Collections.emptyMap(), environment, Collections.singletonList(Shell.command(words)), null, null, null);
  }

  private static Map<String, String> environment(Options options) {
    Map<String, String> environment = new TreeMap<>();
    for (String pair : options.all("env")) {
      int at = pair.indexOf('=');
      if (at <= 0) {
        throw new IllegalArgumentException("--env: KEY=VALUE was expected, not " + pair);
      }
      environment.put(pair.substring(0, at), pair.substring(at + 1));
    }
    return environment;
  }

  private static String jarOf(Class<?> type) throws URISyntaxException {
    return new File(type.getProtectionDomain().getCodeSource().getLocation().toURI()).getPath();
  }
}
