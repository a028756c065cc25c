"""The simulated ResourceManager in real time: `SimulatedCluster` on a thread of its own.

What `make run` uses where there is no YARN. The thread sleeps until something is due or an arbiter wants something.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, TellJob, WithdrawLeases
from themis_arbiter.core.types import Millis
from themis_arbiter.ports import Clock
from themis_arbiter.sim.live_link import Submit
from themis_arbiter.sim.live_model import SimulatedCluster
from themis_arbiter.sim.live_reports import SimJobView

SLEEP_SECONDS_MAX: Final = 1.0
STOP_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


class LiveCluster:
    """A `ResourceManager` port for one arbiter. `cluster` must have been made with the clock's time as its start.

    From `start` on, only the thread touches `cluster`; `jobs` and `do` are for others.
    """

    def __init__(
        self, cluster: SimulatedCluster, clock: Clock, *, on_failure: Callable[[Exception], None] | None = None
    ) -> None:
        self._cluster, self._clock, self._on_failure = cluster, clock, on_failure
        self._changed = threading.Condition()
        self._has_news = False
        self._actions: deque[Callable[[SimulatedCluster], None]] = deque()
        self._is_stopping = False
        self._link = cluster.link(self._wake)
        self._jobs: tuple[SimJobView, ...] = cluster.jobs()
        self._thread = threading.Thread(target=self._run, name="themis-sim-cluster", daemon=True)
        self.is_over: Final = threading.Event()  # set when every job has finished
        self.failure: Exception | None = None

    # -- the port: returns at once, any thread

    def sync(self, effect: SyncLeases) -> None:
        """Make these all the leases that the gate honours."""
        self._link.sync(effect)

    def grant(self, effect: GrantGpus) -> None:
        """Admit containers under these leases."""
        self._link.grant(effect)

    def drain(self, effect: RequestDrain) -> None:
        """Ask for these leases' GPUs now, take them at the deadline."""
        self._link.drain(effect)

    def withdraw(self, effect: WithdrawLeases) -> None:
        """Forget these leases."""
        self._link.withdraw(effect)

    def tell(self, effect: TellJob) -> None:
        """Show why a job waits."""
        self._link.tell(effect)

    # -- its life

    def start(self, submit: Submit) -> None:
        """Attach the arbiter behind `submit` (EngineLoop.submit) and let time run."""
        self._link.attach(submit)
        self._thread.start()

    def stop(self, timeout_s: float = STOP_SECONDS) -> None:
        """End the thread. Errors: TimeoutError where it does not within `timeout_s`."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.ident is None:
            return  # never started
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the simulated cluster has not ended within {timeout_s} s")

    def do(self, action: Callable[[SimulatedCluster], None]) -> None:
        """Have the thread do something to the cluster: lose a node, add a job, restart. Any thread may call this."""
        self._actions.append(action)
        self._wake()

    def jobs(self) -> tuple[SimJobView, ...]:
        """All jobs as of the last time that anything happened. Any thread may call this."""
        return self._jobs

    def _wake(self) -> None:
        with self._changed:
            self._has_news = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            while self._wait():
                self._turn()
        except Exception as err:  # noqa: BLE001 - the thread's end: the owner is told
            self.failure = err
            _log.exception("the simulated cluster failed")
            if self._on_failure is not None:
                self._on_failure(err)

    def _turn(self) -> None:
        self._cluster.advance(self._clock.now_ms())
        while self._actions:
            self._actions.popleft()(self._cluster)
        self._jobs = self._cluster.jobs()
        if self._cluster.is_over():
            self.is_over.set()
        else:
            self.is_over.clear()

    def _wait(self) -> bool:
        """Sleep until something is due or wanted; False: stop."""
        next_ms = self._cluster.next_at_ms()
        with self._changed:
            if not self._has_news and not self._is_stopping:
                self._changed.wait(self._delay_s(next_ms))
            self._has_news = False
            return not self._is_stopping

    def _delay_s(self, next_ms: Millis | None) -> float:
        if next_ms is None:
            return SLEEP_SECONDS_MAX
        return max(0.0, min(SLEEP_SECONDS_MAX, (next_ms - self._clock.now_ms()) / 1000))
