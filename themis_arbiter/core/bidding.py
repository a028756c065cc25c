"""The bid the arbiter makes for an app that runs no agent: a table of shapes and the rho each would give.

In-app order: jobs that run, then jobs that paused, then new ones; the longest first. GPUs fill gangs in that order. Then jobs
grow, unit by unit the one that would be done last: an app is done when all its jobs are, so any other order leaves rows out
that are worth more, and who said that it can use less would win them (`themis audit` found that).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from themis_arbiter.core.auction.bid import PARTS_MAX, ROWS_MAX, Bid, Part, Row, Supply
from themis_arbiter.core.gpu_speeds import Speeds
from themis_arbiter.core.policies.base import Market, MarketApp, MarketJob
from themis_arbiter.core.rho import Served, as_held, rho_of, served, time_left, time_left_of
from themis_arbiter.core.types import GpuId, JobId, Locality

SPLITS_MAX: Final = 16  # different GPU counts in one bid; more are thinned out evenly
SPLITS_MIN: Final = 4  # where a bid has rows for each of several GPU types
ANY_BAND: Final = -1  # a row on whatever types may be used

Split = dict[JobId, int]  # GPUs that each job takes from the offer


def splits(app: MarketApp, supply_size: int) -> Iterator[Split]:
    """Ever larger splits of the offer over the app's jobs, gangs whole."""
    taken: Split = {}
    order = [j for j in app.in_order if j.can_gain][:PARTS_MAX]
    room = supply_size
    for job in order:
        need = max(0, job.gang - len(job.held))
        need = -(-need // job.unit) * job.unit
        if 0 < need <= room:
            taken[job.job_id] = need
            room -= need
            yield dict(taken)
    has = [len(job.held) + taken.get(job.job_id, 0) for job in order]
    growing = [(-job.remaining / has[k], k) for k, job in enumerate(order) if has[k] >= max(1, job.gang)]
    heapify(growing)
    while growing:
        _, k = heappop(growing)
        job = order[k]
        if has[k] + job.unit <= job.wanted and job.unit <= room:
            has[k] += job.unit
            room -= job.unit
            taken[job.job_id] = taken.get(job.job_id, 0) + job.unit
            heappush(growing, (-job.remaining / has[k], k))
            yield dict(taken)


def thinned(all_splits: list[Split], limit: int) -> list[Split]:
    """At most `limit` of them, evenly, the first and the last always."""
    if len(all_splits) <= limit:
        return all_splits
    step = (len(all_splits) - 1) / (limit - 1)
    return [all_splits[round(k * step)] for k in range(limit)]


def tightest(
    gpus: tuple[GpuId, ...], beside: tuple[GpuId, ...], count: int, supply: Supply, speeds: Speeds | None = None
) -> tuple[GpuId, ...]:
    """`count` of a job's GPUs that lie closest: machines where most of them (and of `beside`) are come first.

    Before that, fast types come first: the slowest GPU holds up all others.
    """
    if count == len(gpus):
        return tuple(sorted(gpus))
    places = supply.topology.places
    on_machine: dict[str, int] = {}
    in_rack: dict[str, int] = {}
    for gpu in (*gpus, *beside):
        on_machine[places[gpu].machine] = on_machine.get(places[gpu].machine, 0) + 1
        in_rack[places[gpu].rack] = in_rack.get(places[gpu].rack, 0) + 1
    order = sorted(
        gpus,
        key=lambda g: (
            0.0 if speeds is None else -speeds.of_machine[places[g].machine],
            -in_rack[places[g].rack],
            -on_machine[places[g].machine],
            places[g].machine,
            places[g].ordinal,
        ),
    )
    return tuple(sorted(order[:count]))


def _levels(market: Market, job: MarketJob, count: int) -> Iterator[Locality]:
    """Levels worth asking for: of those with equal slowdown only the loosest, which is the easiest to place."""
    best = market.supply.topology.best_locality(count)
    slowdown = market.settings.slowdowns.slowdown
    for level in Locality:
        if level >= best and (
            level is Locality.CLUSTER or slowdown(job.model, level) < slowdown(job.model, Locality(level + 1))
        ):
            yield level


class _Table:
    """Makes the rows of one app. Splits have most of their parts in common, so each part is made once."""

    def __init__(self, market: Market, app: MarketApp) -> None:
        self._market = market
        self._app = app
        self._jobs = {j.job_id: j for j in app.jobs}
        self._parts: dict[tuple[JobId, int, Locality, bool, int], tuple[Part, Served] | None] = {}
        locality = market.supply.topology.locality
        self._kept = {
            j.job_id: served(market, j, len(j.held), locality(j.held), False, market.slowest(j, j.held))
            for j in app.jobs
            if j.held
        }
        self._bands = {j.job_id: bands_of(market, j) for j in app.jobs if j.gpu_speeds}
        self.choices = max([1, *map(len, self._bands.values())])  # of types, of any job

    def rows_of(self, split: Split) -> Iterator[tuple[float, tuple[Part, ...]]]:
        """Rho and parts of each row of one split: at each level, on GPUs that it has, and afresh where those may lie closer."""
        widest = max(split, key=lambda j: (split[j] + len(self._jobs[j].held), j))
        lead = self._jobs[widest]
        is_any_ending = any(self._jobs[j].ending for j in split)
        for level in _levels(self._market, lead, split[widest] + len(lead.held)):
            for keeps in (True, False) if is_any_ending else (True,):
                for band in self._choices_of(split):
                    row = self._row(split, level, band, keeps=keeps)
                    if row is not None:
                        yield row

    def _choices_of(self, split: Split) -> Iterator[int]:
        """Which types its jobs may ask for: the fastest each, the next ones; and all of them where the last have too few."""
        bands = [b for job_id in split if (b := self._bands.get(job_id))]
        most = max(map(len, bands), default=1)
        yield from range(most)
        if most > 1 and sum(split.values()) > min([b[-1].gpus for b in bands if len(b) > 1]):
            yield ANY_BAND

    def _row(self, split: Split, level: Locality, band: int, *, keeps: bool) -> tuple[float, tuple[Part, ...]] | None:
        parts: list[Part] = []
        jobs = dict(self._kept)
        for job_id, count in split.items():
            key = (job_id, count, level, keeps, band)
            if key not in self._parts:
                self._parts[key] = self._part(self._jobs[job_id], count, level, band, keeps=keeps)
            found = self._parts[key]
            if found is None:
                return None
            parts.append(found[0])
            jobs[job_id] = found[1]
        parts.sort(key=_job_id)
        left_ms = time_left_of(self._market, self._app, [jobs[j] for j in self._jobs if j in jobs])
        return rho_of(self._market, self._app, left_ms), tuple(parts)

    def _part(self, job: MarketJob, count: int, level: Locality, band: int, *, keeps: bool) -> tuple[Part, Served] | None:
        """So many more GPUs for a job, no further apart than need be, and what it makes of all it has then."""
        supply = self._market.supply
        total = len(job.held) + count
        level = max(level, supply.topology.best_locality(total))
        speeds = self._market.speeds(job)
        keep = tightest(job.ending, job.held, min(count, len(job.ending)), supply, speeds) if keeps else ()
        more = count - len(keep)
        known = supply.topology.locality((*job.held, *keep))
        if more % job.unit or known > level:
            return None
        if more == 0:
            level = known
        types: tuple[str, ...] = ()
        type_speed = 1.0
        if speeds is not None:
            types, type_speed = self._types(job, band, (*job.held, *keep), more)
            if type_speed == 0.0:
                return None
        anchor = tuple(sorted(job.held))
        part = Part(job_id=job.job_id, keep=keep, more=more, unit=job.unit, level=level, anchor=anchor, types=types)
        return part, served(self._market, job, total, level, more > 0 or keep != job.ending, type_speed)

    def _types(self, job: MarketJob, band: int, named: tuple[GpuId, ...], more: int) -> tuple[tuple[str, ...], float]:
        """GPU types that a part asks for, and the speed of its slowest GPU; 0: none on offer may be used."""
        bands, known = self._bands[job.job_id], self._market.slowest(job, named)
        if more == 0:
            return (), known
        if not bands:
            return (), 0.0
        if band == ANY_BAND:
            return (), min(known, bands[-1].speed)
        own = bands[min(band, len(bands) - 1)]
        return own.types, min(known, own.speed)


@dataclass(frozen=True, slots=True)
class Band:
    """Types on offer that a job is equally fast on, and GPUs of them on offer."""

    types: tuple[str, ...]
    speed: float
    gpus: int


def bands_of(market: Market, job: MarketJob) -> tuple[Band, ...]:
    """What is on offer to a job, the fastest types first; () where it makes no difference, or it may have nothing."""
    speeds = market.speeds(job)
    if speeds is None:
        return ()
    types: dict[float, set[str]] = {}
    gpus: dict[float, int] = {}
    for name, offered in market.supply.by_machine.items():
        speed = speeds.of_machine[name]
        if speed > 0.0:
            types.setdefault(speed, set()).add(speeds.type_of[name])
            gpus[speed] = gpus.get(speed, 0) + len(offered)
    return tuple(Band(tuple(sorted(types[s])), s, gpus[s]) for s in sorted(types, reverse=True))


_job_id = attrgetter("job_id")


def build_bid(market: Market, app: MarketApp) -> Bid:
    """The app's whole table. Rows that help no more than nothing are left out, and of equal rows all but one."""
    zero = Row(parts=(), rho=rho_of(market, app, time_left(market, app, as_held(market, app))))
    found = list(splits(app, len(market.supply.gpus)))
    table, has_ending = _Table(market, app), any(j.ending for j in app.jobs)
    rows: list[tuple[float, tuple[Part, ...]]] = []
    for split in thinned(found, max(SPLITS_MIN, SPLITS_MAX // table.choices)) if found else []:
        best_here: float | None = None
        # Kept rows come before fresh ones at each level: a fresh one has to be better than what stands already.
        for row in table.rows_of(split):
            rho, parts = row
            is_fresh = has_ending and all(not p.keep for p in parts)
            if rho >= zero.rho or (is_fresh and best_here is not None and rho >= best_here):
                continue
            if row not in rows:
                rows.append(row)
                best_here = rho if best_here is None else min(best_here, rho)
    return Bid(app_id=app.app_id, rows=(zero, *[Row(parts=parts, rho=rho) for rho, parts in rows[: ROWS_MAX - 1]]))
