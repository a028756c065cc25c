package org.themis.yarn.load;

import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ApplicationSubmissionContext;
import org.apache.hadoop.yarn.api.records.Container;
import org.apache.hadoop.yarn.api.records.ContainerLaunchContext;
import org.apache.hadoop.yarn.api.records.FinalApplicationStatus;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.client.api.AMRMClient;
import org.apache.hadoop.yarn.client.api.AMRMClient.ContainerRequest;
import org.apache.hadoop.yarn.client.api.YarnClient;
import org.apache.hadoop.yarn.conf.YarnConfiguration;

/**
 * A load on a ResourceManager that costs no NodeManager anything: unmanaged applications in this process take
 * containers and give them back unlaunched. One line on stdout for each thing that happens: {@code hungry APPLICATION};
 * {@code gpus N}, what the hungry one got so far; {@code batch MS}, how long {@value #BATCH} containers without GPUs took;
 * {@code churn N}, applications that came and went; {@code error TEXT}.
 * A line on stdin has the hungry one return what it got and ask for it again. It runs until it is killed.
 */
public final class Load {
  static final int BATCH = 8;
  static final int ALLOCATE_EVERY_MS = 20;
  private static final YarnConfiguration CONF = new YarnConfiguration();

  private Load() {
  }

  /** An application master in this process. */
  private static final class Master {
    final ApplicationId id;
    final UserGroupInformation user;
    final AMRMClient<ContainerRequest> client;

    Master(YarnClient yarn, String name) throws Exception {
      ApplicationSubmissionContext context = yarn.createApplication().getApplicationSubmissionContext();
      id = context.getApplicationId();
      context.setApplicationName(name);
      context.setUnmanagedAM(true);
      context.setQueue("default");
      context.setAMContainerSpec(ContainerLaunchContext.newInstance(Collections.emptyMap(), Collections.emptyMap(),
          Collections.emptyList(), Collections.emptyMap(), null, Collections.emptyMap()));
      context.setResource(Resource.newInstance(128, 1));
      yarn.submitApplication(context);
      Token<?> token = null;
      while (token == null) {
        Thread.sleep(ALLOCATE_EVERY_MS);
        token = yarn.getAMRMToken(id);
      }
      user = UserGroupInformation.createRemoteUser(id.toString());
      user.addToken(token);
      client = user.doAs((PrivilegedExceptionAction<AMRMClient<ContainerRequest>>) () -> {
        AMRMClient<ContainerRequest> made = AMRMClient.createAMRMClient();
        made.init(CONF);
        made.start();
        made.registerApplicationMaster("127.0.0.1", 0, "");
        return made;
      });
    }

    void ask(int count, int gpus) {
      Resource resource = Resource.newInstance(128, 1);
      if (gpus > 0) {
        resource.setResourceValue("yarn.io/gpu", gpus);
      }
      for (int i = 0; i < count; i++) {
        client.addContainerRequest(new ContainerRequest(resource, null, null, Priority.newInstance(1)));
      }
    }

    List<Container> take(int wanted) throws Exception {
      List<Container> got = new ArrayList<>();
      while (got.size() < wanted) {
        got.addAll(beat());
        Thread.sleep(ALLOCATE_EVERY_MS);
      }
      return got;
    }

    List<Container> beat() throws Exception {
      return user.doAs((PrivilegedExceptionAction<List<Container>>) () -> {
        List<Container> got = client.allocate(0.5f).getAllocatedContainers();
        for (Container container : got) {
          client.removeContainerRequest(new ContainerRequest(container.getResource(), null, null, container.getPriority()));
        }
        return got;
      });
    }

    void giveBack(List<Container> containers) {
      containers.forEach(container -> client.releaseAssignedContainer(container.getId()));
    }

    void end() throws Exception {
      user.doAs((PrivilegedExceptionAction<Void>) () -> {
        client.unregisterApplicationMaster(FinalApplicationStatus.SUCCEEDED, "", "");
        client.stop();
        return null;
      });
    }
  }

  /** Nothing but the cluster's conf folder on the class path is needed. */
  public static void main(String[] args) throws Exception {
    YarnClient yarn = YarnClient.createYarnClient();
    yarn.init(CONF);
    yarn.start();
    Master hungry = new Master(yarn, "hungry");
    tell("hungry " + hungry.id);
    hungry.ask(2, 1);
    run(() -> {
      List<Container> held = new ArrayList<>();
      int got = 0;
      while (true) {
        List<Container> more = hungry.beat();
        held.addAll(more);
        got += more.size();
        tell("gpus " + got);
        if (System.in.available() > 0 && System.in.read(new byte[64]) > 0) {
          hungry.giveBack(held);
          hungry.ask(held.size(), 1);
          held.clear();
        }
        Thread.sleep(5 * ALLOCATE_EVERY_MS);
      }
    });
    run(() -> {
      for (int n = 1;; n++) {
        Master guest = new Master(yarn, "guest");
        guest.ask(1, 0);
        guest.giveBack(guest.take(1));
        guest.beat();
        guest.end();
        tell("churn " + n);
      }
    });
    Master stream = new Master(yarn, "stream");
    run(() -> {
      while (true) {
        long began = System.nanoTime();
        stream.ask(BATCH, 0);
        List<Container> got = stream.take(BATCH);
        tell("batch " + (System.nanoTime() - began) / 1_000_000);
        stream.giveBack(got);
        stream.giveBack(stream.beat()); // YARN gives some twice where an ask and its answer cross
      }
    });
  }

  private interface Work {
    void run() throws Exception;
  }

  private static void run(Work work) {
    new Thread(() -> {
      try {
        work.run();
      } catch (Throwable t) {
        tell("error " + t.toString().replace('\n', ' '));
        System.exit(1);
      }
    }).start();
  }

  private static synchronized void tell(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
