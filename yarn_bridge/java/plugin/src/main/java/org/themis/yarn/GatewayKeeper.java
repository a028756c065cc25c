package org.themis.yarn;

import java.util.concurrent.CountDownLatch;
import java.util.function.Supplier;

/**
 * Holds the gateway for one activation, on a thread of its own: opening and closing touch disk and network, and a slow
 * disk must hold up neither the ResourceManager's start nor its stop.
 */
final class GatewayKeeper implements Runnable {
  /** That a stop waits for gateway.json to go; the bridge finds out by itself where it stays. */
  static final long CLOSE_MS_MAX = 2_000;

  private final Supplier<Gateway> opening;
  private final CountDownLatch over = new CountDownLatch(1);
  private final Thread thread = new Thread(this, "themis-gateway-keeper");

  /** {@code opening} answers null where there can be no gateway. */
  GatewayKeeper(Supplier<Gateway> opening) {
    this.opening = opening;
    thread.setDaemon(true);
  }

  void start() {
    thread.start();
  }

  @Override
  public void run() {
    Guard.run("gateway", () -> {
      Gateway gateway = opening.get();
      over.await();
      if (gateway != null) {
        gateway.close();
      }
    });
  }

  /** Closes it, waiting at most {@value #CLOSE_MS_MAX} ms; what is slower is finished without the caller. */
  void stop() throws InterruptedException {
    over.countDown();
    thread.join(CLOSE_MS_MAX);
  }
}
