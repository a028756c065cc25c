package org.themis.yarn;

import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceInformation;
import org.apache.hadoop.yarn.util.resource.ResourceUtils;

/** GPUs of a YARN resource. */
final class Gpus {
  static final String NAME = ResourceInformation.GPU_URI;

  private Gpus() {
  }

  /** True where the ResourceManager's configuration knows GPUs at all. */
  static boolean areConfigured() {
    return ResourceUtils.getResourceTypes().containsKey(NAME);
  }

  /** GPUs of one resource, 0 where there are none or GPUs are not configured. */
  static int of(Resource resource) {
    if (resource == null) {
      return 0;
    }
    Integer index = ResourceUtils.getResourceTypeIndex().get(NAME);
    ResourceInformation[] all = resource.getResources();
    if (index == null || index >= all.length) {
      return 0;
    }
    return (int) Math.max(0, Math.min(Integer.MAX_VALUE, all[index].getValue()));
  }
}
