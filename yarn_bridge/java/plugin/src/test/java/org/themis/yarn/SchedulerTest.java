package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.api.protocolrecords.AllocateResponse;
import org.apache.hadoop.yarn.api.records.Container;
import org.apache.hadoop.yarn.api.records.ContainerState;
import org.apache.hadoop.yarn.api.records.ContainerStatus;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.api.records.ResourceSizing;
import org.apache.hadoop.yarn.api.records.SchedulingRequest;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.exceptions.YarnException;
import org.apache.hadoop.yarn.server.resourcemanager.MockAM;
import org.apache.hadoop.yarn.server.resourcemanager.MockNM;
import org.apache.hadoop.yarn.server.resourcemanager.MockRM;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppState;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.ResourceScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacitySchedulerConfiguration;
import org.apache.hadoop.yarn.server.utils.BuilderUtils;
import org.apache.hadoop.yarn.util.resource.DominantResourceCalculator;
import org.apache.hadoop.yarn.util.resource.ResourceUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The plugin in a whole ResourceManager without processes (Hadoop's MockRM); JSON goes in and out as over Py4J. */
class SchedulerTest {
  private static final ObjectMapper JSON = new ObjectMapper();
  // Tokens want names that resolve; these do everywhere.
  private static final String N1 = "127.0.1.1";
  private static final String N2 = "127.0.1.2";
  private static final int WAIT_MS = 15_000;
  private static final int NODE_MB = 8_192;
  private static final int NODE_VCORES = 16;

  @TempDir
  Path folder;

  private MockRM rm;
  private MockNM nm1;
  private MockNM nm2;
  private long seq;

  private YarnConfiguration configuration() {
    YarnConfiguration conf = new YarnConfiguration();
    conf.setClass(YarnConfiguration.RM_SCHEDULER, ThemisScheduler.class, ResourceScheduler.class);
    conf.set(YarnConfiguration.FS_NODE_ATTRIBUTE_STORE_ROOT_DIR, folder.toUri().toString());
    conf.set(Settings.GATEWAY_DIR, folder.resolve("gateway").toString());
    conf.set("yarn.resource-types", Gpus.NAME);
    conf.set("yarn.resource-types." + Gpus.NAME + ".maximum-allocation", "8");
    conf.set(CapacitySchedulerConfiguration.RESOURCE_CALCULATOR_CLASS, DominantResourceCalculator.class.getName());
    conf.setFloat(CapacitySchedulerConfiguration.MAXIMUM_APPLICATION_MASTERS_RESOURCE_PERCENT, 1.0f);
    conf.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 128);
    conf.set(YarnConfiguration.RM_PLACEMENT_CONSTRAINTS_HANDLER,
        YarnConfiguration.SCHEDULER_RM_PLACEMENT_CONSTRAINTS_HANDLER);
    return conf;
  }

  private void start(Configuration conf) throws Exception {
    ResourceUtils.resetResourceTypes(conf);
    rm = new MockRM(conf);
    rm.start();
    nm1 = rm.registerNode(N1 + ":1234", resource(NODE_MB, NODE_VCORES, 4));
    nm2 = rm.registerNode(N2 + ":1234", resource(NODE_MB, NODE_VCORES, 4));
  }

  @AfterEach
  void stop() {
    if (rm != null) {
      rm.stop();
    }
    ResourceUtils.resetResourceTypes(new Configuration());
  }

  private static Resource resource(int memoryMb, int gpus) {
    return resource(memoryMb, 1, gpus);
  }

  private static Resource resource(int memoryMb, int vcores, int gpus) {
    Resource resource = Resource.newInstance(memoryMb, vcores);
    resource.setResourceValue(Gpus.NAME, gpus);
    return resource;
  }

  private ThemisScheduler scheduler() {
    return (ThemisScheduler) rm.getResourceScheduler();
  }

  private JsonNode apply(String body) throws Exception {
    JsonNode hello = JSON.readTree(scheduler().entryPoint().hello());
    String message = "{\"epoch\": 1, \"seq\": " + ++seq + ", \"start_id\": " + hello.get("start_id") + ", "
        + body.replace('\'', '"') + "}";
    return JSON.readTree(scheduler().entryPoint().apply(message.getBytes(StandardCharsets.UTF_8)));
  }

  private static String leases(RMApp app, String node, int count) {
    StringBuilder list = new StringBuilder();
    for (int i = 0; i < count; i++) {
      list.append(i == 0 ? "" : ",").append("{'lease_id': 'l").append(i).append("', 'application_id': '")
          .append(app.getApplicationId()).append("', 'node': '").append(node).append("', 'gpus': 1}");
    }
    return "'is_full': true, 'leases': [" + list + "]";
  }

  private JsonNode snapshot() throws Exception {
    return JSON.readTree(scheduler().entryPoint().snapshot());
  }

  private JsonNode counters() throws Exception {
    return JSON.readTree(scheduler().entryPoint().counters());
  }

  private MockAM application(MockNM nm) throws Exception {
    return MockRM.launchAndRegisterAM(rm.submitApp(256), rm, nm);
  }

  private RMApp app(MockAM am) {
    return rm.getRMContext().getRMApps().get(am.getApplicationAttemptId().getApplicationId());
  }

  private static void ask(MockAM am, int count, int memoryMb, int gpus) throws Exception {
    am.allocate(Collections.singletonList(ResourceRequest.newInstance(Priority.newInstance(1), ResourceRequest.ANY,
        resource(memoryMb, gpus), count)), new ArrayList<>());
  }

  /** Heartbeats of both nodes until the AM has so many containers, and some more to see whether it gets too many. */
  private List<Container> beat(MockAM am, int wanted) throws Exception {
    List<Container> got = new ArrayList<>();
    long end = System.currentTimeMillis() + WAIT_MS;
    for (int extra = 0; extra < 5 && System.currentTimeMillis() < end; extra += got.size() >= wanted ? 1 : 0) {
      nm1.nodeHeartbeat(true);
      nm2.nodeHeartbeat(true);
      rm.drainEvents();
      got.addAll(am.allocate(new ArrayList<>(), new ArrayList<>()).getAllocatedContainers());
    }
    return got;
  }

  private void await(BooleanSupplier claim, String what) throws Exception {
    long end = System.currentTimeMillis() + WAIT_MS;
    while (!claim.getAsBoolean()) {
      assertTrue(System.currentTimeMillis() < end, what);
      Thread.sleep(20);
    }
  }

  @Test
  void containersFollowLeases() throws Exception {
    start(configuration());
    MockAM am = application(nm1);
    ask(am, 5, 256, 1);
    assertEquals(0, beat(am, 0).size(), "before the first full update");
    assertTrue(apply("'is_full': true").get("is_accepted").booleanValue());
    assertEquals(0, beat(am, 0).size(), "no lease");
    assertEquals(5, snapshot().at("/applications/0/asks/0/count").intValue());
    assertTrue(apply(leases(app(am), N2, 2)).get("is_accepted").booleanValue());
    List<Container> got = beat(am, 2);
    assertEquals(2, got.size());
    got.forEach(container -> assertEquals(N2, container.getNodeId().getHost()));
    assertEquals(3, snapshot().at("/applications/0/asks/0/count").intValue());
    assertEquals(2, snapshot().get("containers").size());
    assertTrue(counters().get("prechecks2").longValue() > 0);
    assertEquals(0, counters().get("commit_refusals").longValue(), "the precheck spares the scheduler vain proposals");
  }

  @Test
  void aLeaseIsNotKeptWaitingForLocality() throws Exception {
    YarnConfiguration conf = configuration();
    conf.setInt(CapacitySchedulerConfiguration.NODE_LOCALITY_DELAY, 40);
    start(conf);
    for (int i = 3; i <= 40; i++) {
      rm.registerNode("127.0.1." + i + ":1234", resource(NODE_MB, NODE_VCORES, 4));
    }
    MockAM am = application(nm1);
    apply(leases(app(am), N2, 1));
    List<ResourceRequest> asks = new ArrayList<>();
    for (String place : new String[] {N1, "127.0.1.3", "127.0.1.4", "/default-rack", ResourceRequest.ANY}) {
      asks.add(ResourceRequest.newInstance(Priority.newInstance(1), place, resource(256, 1), 20));
    }
    am.allocate(asks, new ArrayList<>());
    nm2.nodeHeartbeat(true);
    rm.drainEvents();
    List<Container> got = am.allocate(new ArrayList<>(), new ArrayList<>()).getAllocatedContainers();
    assertEquals(1, got.size(), "at the first heartbeat of the leased node");
    assertEquals(N2, got.get(0).getNodeId().getHost());
  }

  @Test
  void withoutGpusAndForAmsThereIsNoGate() throws Exception {
    start(configuration());
    MockAM am = application(nm1);
    ask(am, 3, 256, 0);
    assertEquals(3, beat(am, 3).size());
    RMApp gpuAm = rm.submitApp(Collections.singletonList(
        ResourceRequest.newInstance(Priority.newInstance(0), ResourceRequest.ANY, resource(256, 1), 1)));
    MockRM.launchAndRegisterAM(gpuAm, rm, nm1);
    JsonNode containers = snapshot().get("containers");
    assertEquals(1, containers.size());
    assertTrue(containers.get(0).get("is_am").booleanValue());
    assertEquals(0, scheduler().gate().ledger.used(gpuAm.getApplicationId(), N1));
  }

  @Test
  void aDrainWarnsThenTakesTheNewestContainer() throws Exception {
    start(configuration());
    drainTakesOne();
  }

  @Test
  void aDrainTakesItUnderLazyPreemptionToo() throws Exception {
    YarnConfiguration conf = configuration();
    conf.setBoolean(CapacitySchedulerConfiguration.LAZY_PREEMPTION_ENABLED, true);
    start(conf);
    drainTakesOne();
  }

  private void drainTakesOne() throws Exception {
    MockAM am = application(nm1);
    ask(am, 2, 256, 1);
    apply(leases(app(am), N2, 2));
    assertEquals(2, beat(am, 2).size());
    long since = snapshot().get("seq").longValue();
    apply("'drains': [{'lease_ids': ['l0'], 'kill_in_ms': 700}]");
    AllocateResponse[] heard = new AllocateResponse[1];
    await(() -> {
      try {
        heard[0] = am.allocate(new ArrayList<>(), new ArrayList<>());
        return heard[0].getPreemptionMessage() != null;
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }, "a preemption message");
    assertEquals(1, heard[0].getPreemptionMessage().getContract().getContainers().size());
    assertEquals(2, snapshot().get("containers").size(), "not yet");
    List<ContainerStatus> ended = new ArrayList<>();
    await(() -> {
      try {
        ended.addAll(am.allocate(new ArrayList<>(), new ArrayList<>()).getCompletedContainersStatuses());
        return !ended.isEmpty();
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }, "an ended container");
    assertEquals(1, ended.size());
    assertEquals(-102, ended.get(0).getExitStatus());
    assertEquals(heard[0].getPreemptionMessage().getContract().getContainers().iterator().next().getId(),
        ended.get(0).getContainerId(), "the one that was warned");
    JsonNode told = JSON.readTree(scheduler().entryPoint().changes(since, 0)).get("containers");
    assertEquals(1, told.size());
    assertEquals("COMPLETED", told.get(0).get("state").textValue());
    assertEquals(-102, told.get(0).get("exit_status").intValue());
    assertEquals(1, snapshot().get("containers").size());
  }

  @Test
  void aReservationEndsWithItsLease() throws Exception {
    start(configuration());
    MockAM filler = application(nm2);
    ask(filler, 1, NODE_MB - 512, 0);
    ask(filler, 1, NODE_MB - 512, 0);
    nm2.nodeHeartbeat(true);
    rm.drainEvents();
    MockAM am = application(nm1);
    apply(leases(app(am), N2, 1));
    ask(am, 1, 2_048, 1);
    await(() -> beatOnce() && scheduler().getNode(nm2.getNodeId()).getReservedContainer() != null, "a reservation");
    apply("'removed_lease_ids': ['l0']");
    await(() -> scheduler().getNode(nm2.getNodeId()).getReservedContainer() == null, "its end");
    beat(am, 0);
    assertEquals(null, scheduler().getNode(nm2.getNodeId()).getReservedContainer());
  }

  private boolean beatOnce() {
    try {
      nm2.nodeHeartbeat(true);
      rm.drainEvents();
      return true;
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  private static List<SchedulingRequest> gpuSchedulingRequest(int id) {
    return Collections.singletonList(SchedulingRequest.newBuilder().allocationRequestId(id)
        .priority(Priority.newInstance(id)).resourceSizing(ResourceSizing.newInstance(1, resource(256, 1))).build());
  }

  @Test
  void gpuSchedulingRequestsAreRefusedWhereLeasesRule() throws Exception {
    start(configuration());
    MockAM am = application(nm1);
    apply("'is_full': true");
    am.addSchedulingRequest(gpuSchedulingRequest(1));
    Exception refusal = assertThrows(YarnException.class, () -> am.allocate(new ArrayList<>(), new ArrayList<>()));
    assertTrue(refusal.getMessage().contains("SchedulingRequest"), refusal.getMessage());
  }

  @Test
  void gpuSchedulingRequestsAreServedWhereEverythingIsLetIn() throws Exception {
    YarnConfiguration conf = configuration();
    conf.setLong(Settings.FALLBACK_AFTER_MS, 300);
    start(conf);
    MockAM am = application(nm1);
    await(() -> scheduler().gate().fallback.mode() == Fallback.Mode.PASS_THROUGH, "the fall-back");
    am.addSchedulingRequest(gpuSchedulingRequest(1));
    assertEquals(1, beat(am, 1).size(), "under pass-through");
    apply("'is_full': true, 'is_observing': true");
    am.addSchedulingRequest(gpuSchedulingRequest(2));
    assertEquals(1, beat(am, 1).size(), "while the arbiter looks on");
  }

  @Test
  void whileTheArbiterLooksOnYarnRules() throws Exception {
    start(configuration());
    MockAM am = application(nm1);
    ask(am, 3, 256, 1);
    apply(leases(app(am), N2, 1) + ", 'is_observing': true");
    assertEquals("OBSERVING", counters().get("mode").textValue());
    assertEquals(3, beat(am, 3).size());
    apply("'drains': [{'lease_ids': ['l0'], 'kill_in_ms': 0}]");
    Thread.sleep(DrainTimer.TICK_MS + 300);
    rm.drainEvents();
    assertEquals(3, snapshot().get("containers").size(), "nothing is ever taken");
    assertEquals(0, counters().get("preempt_marks").longValue());
    apply("'is_full': true");
    assertEquals("LEASES", counters().get("mode").textValue());
    ask(am, 1, 256, 1);
    assertEquals(0, beat(am, 0).size(), "leases rule again");
    assertEquals(3, snapshot().get("containers").size(), "what runs goes on");
  }

  @Test
  void committersThatRaceGetWhatIsLeased() throws Exception {
    YarnConfiguration conf = configuration();
    conf.setBoolean(CapacitySchedulerConfiguration.SCHEDULE_ASYNCHRONOUSLY_ENABLE, true);
    conf.setInt(CapacitySchedulerConfiguration.SCHEDULE_ASYNCHRONOUSLY_MAXIMUM_THREAD, 3);
    conf.setInt(CapacitySchedulerConfiguration.SCHEDULE_ASYNCHRONOUSLY_PREFIX + ".scheduling-interval-ms", 0);
    start(conf);
    MockAM am = MockRM.launchAMWhenAsyncSchedulingEnabled(rm.submitApp(256), rm);
    am.registerAppAttempt();
    apply("'is_full': true");
    ask(am, 8, 256, 1);
    apply(leases(app(am), N1, 3));
    assertEquals(3, beat(am, 3).size());
    Thread.sleep(300);
    assertEquals(0, beat(am, 0).size());
    // Refused proposals must give back what the scheduler counted for them, or the last lease would find no headroom.
    apply(leases(app(am), N1, 4));
    assertEquals(1, beat(am, 1).size());
  }

  @Test
  void reportsTellTheLastUpdateThatTheyWereMadeUnder() throws Exception {
    start(configuration());
    MockAM am = application(nm1);
    assertEquals(0, snapshot().get("lease_seq").longValue(), "none yet");
    apply(leases(app(am), N2, 2));
    JsonNode full = snapshot();
    assertEquals(1, full.get("lease_seq").longValue());
    assertTrue(full.get("lease_epoch").longValue() > 0);
    JsonNode drained = apply("'drains': [{'lease_ids': ['l0'], 'kill_in_ms': 60000}]");
    // Nothing else changed, so a reader that waits has to be woken for it.
    long began = System.nanoTime();
    JsonNode told = JSON.readTree(scheduler().entryPoint().changes(full.get("seq").longValue(), 1_000));
    assertTrue(System.nanoTime() - began < 900_000_000L, "it waited");
    assertEquals(drained.get("seq").longValue(), told.get("lease_seq").longValue());
  }

  @Test
  void endsAreTold() throws Exception {
    start(configuration());
    MockAM am = application(nm1);
    ask(am, 1, 256, 1);
    apply(leases(app(am), N2, 1));
    Container container = beat(am, 1).get(0);
    nm2.nodeHeartbeat(am.getApplicationAttemptId(), container.getId().getContainerId(), ContainerState.RUNNING);
    rm.drainEvents();
    assertEquals("RUNNING", snapshot().at("/containers/0/state").textValue());
    long since = snapshot().get("seq").longValue();
    nm2.nodeHeartbeat(Collections.singletonList(BuilderUtils.newContainerStatus(container.getId(),
        ContainerState.COMPLETE, "", 7, container.getResource())), true);
    rm.drainEvents();
    JsonNode told = JSON.readTree(scheduler().entryPoint().changes(since, 0));
    assertEquals(7, told.at("/containers/0/exit_status").intValue());
    assertEquals("", told.at("/containers/0/ended_by").textValue());
    assertEquals(0, scheduler().gate().ledger.used(app(am).getApplicationId(), N2));
    MockRM.finishAMAndVerifyAppState(app(am), rm, nm1, am);
    rm.drainEvents();
    told = JSON.readTree(scheduler().entryPoint().changes(told.get("seq").longValue(), 0));
    assertEquals("FINISHED", told.at("/applications/0/state").textValue());
    assertEquals("SUCCEEDED", told.at("/applications/0/final_status").textValue());
    JsonNode snapshot = snapshot();
    assertEquals(1, snapshot.get("applications").size(), "who was away learns of it too");
    assertEquals("SUCCEEDED", snapshot.at("/applications/0/final_status").textValue());
    assertTrue(snapshot.at("/applications/0/finish_rm_ms").longValue() > 0);
    nm2.unRegisterNode();
    rm.drainEvents();
    told = JSON.readTree(scheduler().entryPoint().changes(told.get("seq").longValue(), 0));
    assertEquals("LOST", told.at("/nodes/0/state").textValue());
    assertNotNull(told.at("/nodes/0/node").textValue());
  }

  @Test
  void whoEndedAContainerIsTold() throws Exception {
    start(configuration());
    MockAM am = application(nm1);
    ask(am, 2, 256, 1);
    apply(leases(app(am), N2, 2));
    List<Container> containers = beat(am, 2);
    long since = snapshot().get("seq").longValue();
    am.allocate(new ArrayList<>(), Collections.singletonList(containers.get(0).getId()));
    rm.drainEvents();
    since = assertEnded(since, containers.get(0), "MASTER");
    nm2.unRegisterNode();
    rm.drainEvents();
    since = assertEnded(since, containers.get(1), "NODE");
    apply(leases(app(am), N1, 1));
    ask(am, 1, 256, 1);
    Container last = beat(am, 1).get(0);
    rm.killApp(app(am).getApplicationId());
    rm.waitForState(app(am).getApplicationId(), RMAppState.KILLED);
    rm.drainEvents();
    assertEnded(since, last, "APPLICATION");
  }

  private long assertEnded(long since, Container container, String by) throws Exception {
    JsonNode told = JSON.readTree(scheduler().entryPoint().changes(since, 0));
    for (JsonNode each : told.get("containers")) {
      if (each.get("container_id").textValue().equals(container.getId().toString())) {
        assertEquals(-100, each.get("exit_status").intValue());
        assertEquals(by, each.get("ended_by").textValue());
        return told.get("seq").longValue();
      }
    }
    throw new AssertionError("nobody was told of the end of " + container.getId() + ": " + told);
  }
}
