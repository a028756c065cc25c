package org.themis.yarn;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.yarn.api.records.ContainerId;

/** Chooses which containers a drain takes. Pure. */
final class DrainPlan {
  /** The newest has lost the least. Ties end in the id. */
  private static final Comparator<GpuLedger.Held> NEWEST_FIRST =
      Comparator.comparingLong((GpuLedger.Held held) -> held.createdMs)
          .thenComparing(held -> held.containerId).reversed();

  private DrainPlan() {
  }

  /**
   * Containers whose end frees at least {@code gpus}, in the order to take them: those already told of their end
   * ({@code marked}), then the newest. All of them where they do not suffice.
   */
  static List<GpuLedger.Held> victims(List<GpuLedger.Held> live, Set<ContainerId> marked, int gpus) {
    List<GpuLedger.Held> ordered = new ArrayList<>(live);
    ordered.sort(Comparator.comparing((GpuLedger.Held held) -> !marked.contains(held.containerId))
        .thenComparing(NEWEST_FIRST));
    List<GpuLedger.Held> chosen = new ArrayList<>();
    int freed = 0;
    for (GpuLedger.Held held : ordered) {
      if (freed >= gpus) {
        break;
      }
      chosen.add(held);
      freed += held.gpus;
    }
    return chosen;
  }
}
