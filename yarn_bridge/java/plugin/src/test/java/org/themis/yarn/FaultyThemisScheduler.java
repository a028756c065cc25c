package org.themis.yarn;

import java.nio.file.Paths;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEvent;

/** The test build: the plugin made of parts each of whose entry points can be made to throw, block or answer garbage. */
public class FaultyThemisScheduler extends ThemisScheduler {
  /** In yarn-site.xml: the control file. */
  static final String CONTROL = "themis.test.faults";

  @Override
  public void serviceInit(Configuration conf) throws Exception {
    if (conf.get(CONTROL) != null) {
      Faults.follow(Paths.get(conf.get(CONTROL)));
    }
    super.serviceInit(conf);
  }

  @Override
  Parts parts() {
    return new FaultyParts();
  }

  @Override
  Gate gate() {
    return Faults.strike("scheduler.gate") ? null : super.gate();
  }

  @Override
  void note(SchedulerEvent event, String leavingNode) {
    if (!Faults.strike("handle.note")) {
      super.note(event, leavingNode);
    }
  }

  @Override
  void carryOut(GateEvent event) {
    if (!Faults.strike("handle.carryOut")) {
      super.carryOut(event);
    }
  }

  @Override
  void noteProgress(long nowMs) {
    if (!Faults.strike("tick.progress")) {
      super.noteProgress(nowMs);
    }
  }
}
