"""One process that leads, stands by and leads again, many times: each term is its own, and what people read goes on."""

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.memory_store import MemoryDisk, MemoryStore
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.core.events import JobReport, NodeReport, RmAttached, RmReported
from themis_arbiter.engine.loop import NotLeading
from themis_arbiter.obs.metrics import scrape_text
from themis_arbiter.ports import LeaseStore, StoreError
from themis_arbiter.server.bootstrap import Server
from themis_arbiter.server.candidacy import Candidacy
from themis_arbiter.server.config import load_config
from themis_arbiter.server.http import HttpPort
from themis_arbiter.server.values import Address

FLIPS = 10
WAIT_S = 10.0
LOOSE = {"THEMIS_GRPC_ADDRESS": "127.0.0.1:0", "THEMIS_HTTP_ADDRESS": "127.0.0.1:0", "THEMIS_DEBOUNCE": "0"}


class Elected(Candidacy):
    """A candidate whom the test elects and deposes; all its terms are on one store."""

    def __init__(self) -> None:
        self._disk = MemoryDisk()
        self.leads = False
        self.terms_ended = 0
        self.problem = ""
        self.noted: list[str] = []

    def start(
        self,
        _grpc_address: Address,
        _http_address: Address,
        *,
        on_lead: Callable[[str], None],
        on_stand_down: Callable[[str], None],
    ) -> None:
        self.on_lead, self.on_stand_down = on_lead, on_stand_down

    def stop(self) -> None:
        """Nothing is connected."""

    def open_store(self, _candidate: str) -> LeaseStore:
        if self.problem:
            raise StoreError(self.problem)
        return MemoryStore(self._disk)

    def note_begin(self, problem: str = "") -> None:
        self.noted.append(problem)

    def term_ended(self) -> None:
        self.terms_ended += 1

    def why_not(self) -> str:
        return "" if self.leads else "it was deposed"

    def standing_by(self) -> NotLeading:
        return NotLeading("this arbiter stands by: another leads", epoch=MemoryStore(self._disk).epoch())


@pytest.fixture
def led() -> Iterator[tuple[Server, Elected]]:
    config, candidacy = load_config(None, LOOSE | {"THEMIS_STORE": "zookeeper:nowhere:2181/x"}), Elected()
    server = Server(config, clock=SystemClock(), http=HttpPort(config.http_address), candidacy=candidacy)
    server.start()
    waiting = threading.Thread(target=server.wait)
    waiting.start()
    yield server, candidacy
    server.ask_to_end("the test is over")
    waiting.join(WAIT_S)
    assert server.stop()
    assert not waiting.is_alive()


def scraped(server: Server) -> dict[str, float]:
    """Values by name and labels."""
    families = text_string_to_metric_families(scrape_text(server.registry).decode())
    return {f"{x.name}{sorted(x.labels.items())}": x.value for family in families for x in family.samples}


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.005)


def lead(server: Server, candidacy: Elected, node: NodeReport, term: int) -> dict[str, float]:
    """Begin a term in which as many jobs have a GPU each; what is scraped then."""
    candidacy.leads = True
    candidacy.on_lead(f"/candidate-{term}")
    wait_until(lambda: scraped(server)["themis_epoch[]"] == term)
    jobs = tuple(JobReport(app_id=f"a{k}", job_id=f"j{k}", arrival_ms=k, gpus_asked=1) for k in range(term))
    server.submit(lambda at_ms: RmAttached(at_ms=at_ms, start_id="s1"))
    server.submit(lambda at_ms: RmReported(at_ms=at_ms, start_id="s1", is_full=True, nodes=(node,), jobs=jobs))
    wait_until(lambda: server.call(lambda arbiter: len(arbiter.state.ledger)) == term)
    return scraped(server)


def depose(server: Server, candidacy: Elected, term: int) -> dict[str, float]:
    """End the term; what is scraped then."""
    candidacy.leads = False
    candidacy.on_stand_down("it was deposed")
    wait_until(lambda: candidacy.terms_ended == term)
    return scraped(server)


def test_ten_terms_in_one_process_have_right_gauges_and_counters_that_never_fall(led: tuple[Server, Elected]) -> None:
    server, candidacy = led
    node = NodeReport(node="n0", rack="r0", gpus=FLIPS, memory_free_mb=65_536, vcores_free=64)
    counted: dict[str, float] = {}
    for term in range(1, FLIPS + 1):
        leading = lead(server, candidacy, node, term)
        assert (leading["themis_leader[]"], leading["themis_gpus[('state', 'leased')]"]) == (1, term)
        now = {name: value for name, value in leading.items() if "_total" in name or name.endswith("_count[]")}
        assert now["themis_rounds_total[('outcome', 'granted')]"] == term, "each term gave one lease more, and all are counted"
        assert [name for name, value in counted.items() if now.get(name, -1) < value] == []
        counted = now
        standing = depose(server, candidacy, term)
        assert (standing["themis_leader[]"], standing["themis_epoch[]"]) == (0, term)
        assert standing["themis_gpus[('state', 'leased')]"] == 0, "of the leader alone"


def test_a_term_that_could_not_begin_is_noted_until_one_does(led: tuple[Server, Elected]) -> None:
    server, candidacy = led
    candidacy.problem, candidacy.leads = "the store is of a newer version", True
    candidacy.on_lead("/candidate-1")
    wait_until(lambda: candidacy.terms_ended == 1)
    assert candidacy.noted == ["the store is of a newer version"]
    candidacy.problem = ""
    candidacy.on_lead("/candidate-2")
    wait_until(lambda: candidacy.noted[1:] == [""])
    assert scraped(server)["themis_leader[]"] == 1


@pytest.mark.parametrize(
    ("seen", "failed", "says"),
    [
        ({"is_connected": False}, "", ["this arbiter does not lead: it does not reach ZooKeeper at zk:2181"]),
        ({"problem": "NoAuthError"}, "", ["answers it NoAuthError", "THEMIS_ZOOKEEPER_CREDENTIALS"]),
        ({"unreadable": "who leads cannot be read: newer version"}, "", ["; who leads cannot be read: newer version"]),
        ({}, "the disk is full " + "x" * 9_999, ["could not begin: the disk is full"]),
        ({}, "", ["this arbiter stands by: nobody is known to lead yet"]),
    ],
)
def test_a_standby_says_what_keeps_it_from_leading(seen: dict[str, object], failed: str, says: list[str]) -> None:
    candidacy = Candidacy(Place(hosts="zk:2181", chroot="/x"))
    known = {"is_connected": True, "problem": "", "unreadable": "", "reign": lambda: None} | seen
    candidacy._elector = SimpleNamespace(**known)  # type: ignore[assignment]
    candidacy.note_begin(failed)
    text = str(candidacy.standing_by())
    assert all(part in text for part in says), text
    assert len(text) < 500
