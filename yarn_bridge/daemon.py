"""`python -m yarn_bridge.daemon --gateway-dir DIR --arbiter HOST:PORT`: one session after the other, until it is told to stop.

The bridge holds no state: killing it at any moment loses nothing, and it may be started before or after the
ResourceManager and the arbiter. Where several arbiters are named (leader and standbys), they are tried in turn, and the one
that a standby says is leading comes next where it is among the named.
"""

import argparse
import contextlib
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import grpc

from yarn_bridge.gateway import GatewayAddress, GatewayError, InsecureGatewayError, Py4JGateway, read_gateway_file
from yarn_bridge.relay import Relay, open_channel
from yarn_bridge.wire import Teller

BACKOFF_S_MIN: Final = 0.2
BACKOFF_S_MAX: Final = 5.0
SEARCH_S_MAX: Final = 1.0  # between two rounds of all arbiters, where there are several: one of them leads again soon
GOOD_SESSION_S: Final = 5.0  # after so long the next try comes soon again
SILENCE_S: Final = (
    8.0  # four of the arbiter's signs of life: one that is frozen keeps its connections, and gRPC may take a minute
)
STOP_S: Final = 2.5  # after which stopping is over, whatever still runs
ARBITERS_MAX: Final = 16
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

_log = logging.getLogger(__name__)


class Backoff:
    """How long to wait before the next try: doubled each time, less a random part so that many do not come at once."""

    def __init__(self, seed: int, most_s: float = BACKOFF_S_MAX) -> None:
        self._chance, self._most_s = random.Random(f"{seed}/backoff"), most_s
        self._next_s = BACKOFF_S_MIN

    def delay_s(self) -> float:
        """Seconds to wait now, between half of the step and all of it."""
        step_s, self._next_s = self._next_s, min(self._next_s * 2, self._most_s)
        return step_s * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        """The last try was a good one."""
        self._next_s = BACKOFF_S_MIN


class Bridge:
    """Relays between the plugin whose `gateway.json` is in `gateway_dir` and the first arbiter that takes the stream.

    `arbiters` is `host:port`, or several with commas between. `seed` draws the jitter of the waits.
    Errors: ValueError for addresses that are none.
    """

    def __init__(
        self,
        gateway_dir: Path,
        arbiters: str,
        *,
        seed: int = 0,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._gateway_dir, self._credentials = gateway_dir, credentials
        self._arbiters = parse_arbiters(arbiters)
        self._backoff = Backoff(seed, SEARCH_S_MAX if len(self._arbiters) > 1 else BACKOFF_S_MAX)
        self._teller = Teller(_log)
        self._stop = threading.Event()
        self._relay: Relay | None = None

    def run(self) -> None:
        """Relay until `stop`. Errors: InsecureGatewayError, which only a person can put right."""
        count, place = len(self._arbiters), 0
        tried: set[int] = set()  # in this round of all arbiters: a standby may not know yet that its leader is dead
        while not self._stop.is_set():
            leader = self._session(self._arbiters[place])
            tried.add(place)
            said = [self._arbiters.index(leader)] if leader in self._arbiters else []
            in_turn = [(place + k) % count for k in range(1, count + 1)]
            left = [k for k in (*said, *in_turn) if k not in tried]
            place = (left or said or in_turn)[0]
            if not left:
                tried.clear()
                self._stop.wait(self._backoff.delay_s())

    def stop(self) -> None:
        """Let `run` return soon. Any thread may call this, more than once."""
        self._stop.set()
        relay = self._relay
        if relay is not None:
            relay.end("the bridge is stopping")

    def _session(self, arbiter: str) -> str:
        """One session; returns who leads, where the arbiter said so."""
        try:
            address = read_gateway_file(self._gateway_dir)
        except GatewayError as err:
            self._teller.tell(type(err).__name__, f"waiting for the plugin: {err}")
            return ""
        began_s = time.monotonic()
        with self._open(address, arbiter) as relay:
            reason = relay.run()
        # A session that an arbiter takes and that fails at once, again and again, is not a good one.
        if relay.is_attached and time.monotonic() - began_s >= GOOD_SESSION_S:
            self._backoff.reset()
        if not self._stop.is_set():
            self._teller.tell("session", f"session with {arbiter} over: {reason}; trying again")
        return relay.leader

    @contextlib.contextmanager
    def _open(self, address: GatewayAddress, arbiter: str) -> Iterator[Relay]:
        channel = open_channel(arbiter, self._credentials)
        relay = Relay(
            reports=Py4JGateway(address),
            leases=Py4JGateway(address),
            channel=channel,
            start_id=address.start_id,
            teller=self._teller,
            silence_s=SILENCE_S if len(self._arbiters) > 1 else None,
        )
        self._relay = relay
        if self._stop.is_set():  # `stop` may have come before it could see this session
            relay.end("the bridge is stopping")
        try:
            yield relay
        finally:
            relay.end("the session is over")
            self._relay = None
            channel.close()


def parse_arbiters(text: str) -> tuple[str, ...]:
    """The addresses in `text`, in its order. Errors: ValueError."""
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536):
            raise ValueError(f"{address!r} is no arbiter's address: give HOST:PORT")
    if not 0 < len(addresses) <= ARBITERS_MAX:
        raise ValueError(f"give 1 to {ARBITERS_MAX} arbiters as HOST:PORT, with commas between: {text!r}")
    return addresses


def run(gateway_dir: Path | str, arbiter_address: str, *, seed: int = 0) -> int:
    """Be the bridge until SIGTERM or SIGINT; for a main thread. Returns the exit status: 0, or 2 for wrong use."""
    try:
        bridge = Bridge(Path(gateway_dir), arbiter_address, seed=seed)
    except ValueError as err:
        _log.error("%s", err)
        return EXIT_USAGE
    status = EXIT_FAILED  # unless `work` comes to its end
    done = threading.Event()

    def work() -> None:
        nonlocal status
        try:
            bridge.run()
            status = EXIT_OK
        except InsecureGatewayError as err:
            _log.error("%s", err)
            status = EXIT_USAGE
        finally:
            done.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    # Beside the main thread, which stays free to hear signals whatever a call into the ResourceManager waits for.
    worker = threading.Thread(target=work, name="themis-bridge", daemon=True)
    worker.start()
    done.wait()
    bridge.stop()
    worker.join(STOP_S)
    _log.info("the bridge has stopped")
    return EXIT_OK if worker.is_alive() else status


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m yarn_bridge.daemon", description="Carry a ResourceManager's state to the arbiter and leases back."
    )
    parser.add_argument("--gateway-dir", type=Path, required=True, help="what themis.gateway.dir in yarn-site.xml names")
    parser.add_argument("--arbiter", required=True, metavar="HOST:PORT[,HOST:PORT...]")
    parser.add_argument("--seed", type=int, default=0, help="of the jitter in the waits between tries")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    given = parser.parse_args(arguments)
    logging.basicConfig(level=given.log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return run(given.gateway_dir, given.arbiter, seed=given.seed)


if __name__ == "__main__":
    sys.exit(main())
