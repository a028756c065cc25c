"""What one seed draws: a cluster, its jobs, and one to four faults, each at a deed of an arbiter."""

import random
from dataclasses import dataclass, replace
from typing import Final

from tests.support.world import SHORT
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import Millis, OnLeaseEnd
from themis_arbiter.sim.live_jobs import SimJob, SimNode

START_MS: Final[Millis] = 1_000_000
FAULTS_TO_MS: Final[Millis] = 25_000  # after the start
FIRES_WITHIN_MS: Final[Millis] = 25_000
TOGETHER_MS: Final[Millis] = 4_000

DEEDS: Final = ("epoch", "load", "persist", "sync", "grant", "drain", "withdraw")
# How often each is drawn, so that all are found about equally often: some come seldom. Where the deed that a fault waits for
# does not come, it mostly finds a `persist`.
DEEDS_DRAWN: Final = {"epoch": 6, "load": 8, "sync": 8, "grant": 9, "drain": 7, "withdraw": 7}
FAULTS_OF_A_SEED: Final = (1, 3, 3, 4, 4, 4)
AT_START: Final = ("epoch", "load", "sync")  # of a term: there are few later ones
FAULTS: Final = (
    "crash",  # the arbiter's process dies and comes back
    "freeze",  # it is stopped for up to two and a half sessions
    "expire",  # ZooKeeper ends its session
    "lose_request",  # the connection breaks before a write, or a message to the gate, has arrived
    "lose_answer",  # it breaks after that, before the answer
    "cut_out",  # nothing that the arbiter sends to ZooKeeper arrives
    "cut_in",  # nothing that ZooKeeper sends to it arrives
    "cut_rm_out",  # likewise to the bridge
    "cut_rm_in",  # and from the bridge
    "no_quorum",  # ZooKeeper serves nobody
    "disk_full",  # ZooKeeper refuses writes
    "clock",  # the arbiter's time of day is set
    "node_lost",  # a node dies and comes back
    "rm_restart",  # the ResourceManager restarts
    "repeat",  # messages to the gate come twice
    "reorder",  # messages to the gate overtake each other
    "late",  # reports of the ResourceManager come late
    "lie",  # an agent says what is not so of the work that is left
    "forget",  # the bridge leaves the leader without breaking its connection
)
POLICIES: Final = ("themis", "themis", "themis", "guard", "paper", "drf", "tiresias", "gandiva")


@dataclass(frozen=True, slots=True)
class Fault:
    """At the `nth` deed of this kind, before it or after it; where there is none within `within_ms`, at any.

    Counted from `from_ms` after the start, or after the fault before it where it `follows` that.
    """

    kind: str
    deed: str
    is_after: bool
    nth: int
    follows: bool
    from_ms: Millis
    within_ms: Millis
    lasts_ms: Millis


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is drawn beforehand."""

    settings: Settings
    nodes: tuple[SimNode, ...]
    jobs: tuple[SimJob, ...]
    n_arbiters: int
    faults: tuple[Fault, ...]
    is_checked: bool


def draw_plan(seed: int) -> Plan:
    """The seed's."""
    chance = random.Random(f"{seed}/plan")
    nodes = tuple(
        SimNode(node=f"n{k}", rack=f"r{k % 2}", gpus=chance.choice((1, 2, 2, 4))) for k in range(chance.randint(2, 4))
    )
    settings = replace(SHORT, policy=chance.choice(POLICIES), no_show_ms=15_000)
    jobs = tuple(_draw_job(chance, k, nodes) for k in range(chance.randint(3, 6)))
    return Plan(
        settings=settings,
        nodes=nodes,
        jobs=jobs,
        n_arbiters=chance.choice((2, 2, 3)),
        faults=_draw_faults(chance),
        is_checked=chance.random() < 0.25,
    )


def _draw_job(chance: random.Random, k: int, nodes: tuple[SimNode, ...]) -> SimJob:
    """One that fits: a container on one node, the gang on all."""
    unit = min(chance.choice((1, 1, 1, 1, 2)), max(node.gpus for node in nodes))
    gang = unit * min(chance.choice((1, 1, 2)), sum(node.gpus // unit for node in nodes))
    on_lease_end = chance.choice((OnLeaseEnd.CHECKPOINT, OnLeaseEnd.CHECKPOINT, OnLeaseEnd.RESTART, OnLeaseEnd.NEVER))
    longest_s = 30 if on_lease_end is OnLeaseEnd.CHECKPOINT else 10
    return SimJob(
        app_id=f"app{k % 4}",
        job_id=f"job{k}",
        arrival_ms=chance.randrange(25_000),
        gang=gang,
        unit=unit,
        max_gpus=gang * chance.choice((1, 1, 2)),
        work=gang * chance.randint(3, longest_s) * 1_000.0,
        is_work_declared=chance.random() < 0.8,
        on_lease_end=on_lease_end,
    )


def _draw_faults(chance: random.Random) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for k in range(chance.choice(FAULTS_OF_A_SEED)):
        (deed,) = chance.choices(tuple(DEEDS_DRAWN), tuple(DEEDS_DRAWN.values()))
        follows = k > 0 and chance.random() < 0.6
        if follows:
            from_ms = chance.randrange(TOGETHER_MS)
        else:
            from_ms = 0 if deed in AT_START and chance.random() < 0.8 else chance.randrange(FAULTS_TO_MS)
        faults.append(
            Fault(
                kind=chance.choice(FAULTS),
                deed=deed,
                is_after=chance.random() < 0.5,
                nth=1 if deed in AT_START else chance.choice((1, 1, 1, 2, 3)),
                follows=follows,
                from_ms=from_ms,
                within_ms=TOGETHER_MS if follows else FIRES_WITHIN_MS,
                lasts_ms=chance.choice((300, 1_500, 4_000, 7_000, 9_000, 15_000)),
            )
        )
    return tuple(faults)
