"""What lies would have gained in the auctions of a recorded run, by holding each of them again on other bids.

A journal is stepped as `themis replay` does, so every market is the one that the policy saw. In each round that is audited
each bidder tries each lie (`core.misreports`) alone, with the same auction code, and what it gets counts by what is true of it:

    gain = value with the lie / value with the truth - 1        value = 1 / rho

on each of five grounds (`Ground`). Payments make truth the best bid where shares are exact and the search is: there no gain is
above what the search leaves open (`Gain.open_share`). Whole gangs are another matter, and are what the audit is for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import exp
from pathlib import Path
from typing import Final

from themis_arbiter.core.auction.bid import Bid, Placement
from themis_arbiter.core.auction.payment import Outcome
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.misreports import About, all_lies, ending_rho, lied_bid
from themis_arbiter.core.policies.auctioneer import AuctionPolicy, Call
from themis_arbiter.core.policies.base import Decision, Market, MarketApp
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import AppId, GpuId, JobId, RoundNo
from themis_arbiter.engine.replay import ReplayResult, replay_with

ROUNDS_AUDITED_MAX: Final = 10_000
GAIN_MIN: Final = 1e-6  # a gain below it is rounding


class NoAuctions(Exception):
    """The run's policy holds no auctions."""


class Ground(StrEnum):
    """What of a round's outcome an app's value is counted by."""

    UNPAID = "unpaid"  # all that it wins
    PAID = "paid"  # what it keeps of that after its hidden payment, in whole gangs
    EXACT = "exact"  # its exact share c_i of the value of all that it wins, as if GPUs could be cut
    UNPAID_REST = "unpaid+rest"  # UNPAID, and what it gets of the leftovers then
    PAID_REST = "paid+rest"  # PAID, and what it gets of the leftovers then


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One bidder's best lie of one kind in one round, on one ground; `gain` is 0 where none is better than the truth."""

    round_no: RoundNo
    app_id: AppId
    about: About
    ground: Ground
    gain: float
    factor: float  # of the best lie; 1 where the truth is
    rho_true: float  # what truth, and what the lie, leaves it with (of EXACT: rho / c_i)
    rho_lied: float
    open_share: float  # what the search may have missed with the truth, as a share of value


@dataclass(kw_only=True)
class Audit:
    """What was looked at and what came of it."""

    rounds: int = 0  # decided by the policy
    contested: int = 0  # in which two apps or more bid for more than there was
    audited: int = 0
    bids: int = 0  # in audited rounds
    auctions: int = 0  # held again
    silent: int = 0  # lies that change nothing in the bid
    gains: list[Gain] = field(default_factory=list)


class _Recorder:
    """A policy that keeps the auctions it holds: at most 2n-1, spread evenly over those so far."""

    def __init__(self, policy: AuctionPolicy, most: int) -> None:
        self._policy, self._most, self._every = policy, most, 1
        self.calls: list[Call] = []
        self.rounds = self.contested = 0

    def decide(self, market: Market) -> Decision:
        """One round, as the policy decides it."""
        call = self._policy.call(market)
        self.rounds += 1
        if _is_contested(call):
            if self.contested % self._every == 0:
                self.calls.append(call)
            self.contested += 1
            if len(self.calls) == 2 * self._most:
                self.calls = self.calls[::2]
                self._every *= 2
        return self._policy.close(call)

    def sample(self) -> list[Call]:
        """As many of them as wanted, evenly spread."""
        count = min(self._most, len(self.calls))
        return [self.calls[k * len(self.calls) // count] for k in range(count)]


def _is_contested(call: Call) -> bool:
    if len(call.bidders) < 2:
        return False
    wishes = [max(row.gpu_count for row in bid.rows) for bid in call.bids]
    return sum(wishes) > len(call.market.supply.gpus) and sum(w > 0 for w in wishes) > 1


def audit_journal(path: Path, rounds: int, progress: Callable[[str], None]) -> tuple[Audit, ReplayResult]:
    """Step the journal, then audit so many of its contested rounds, or all if there are fewer.

    Errors: NoAuctions; those of `replay_with`. Where the journal decides otherwise than the arbiter does now, nothing is
    audited (`ReplayResult.first_difference`).
    """
    found: list[_Recorder] = []

    def make(settings: Settings) -> Arbiter:
        arbiter = Arbiter(settings)
        if not isinstance(arbiter.state.policy, AuctionPolicy):
            raise NoAuctions(settings.policy)
        found.append(_Recorder(arbiter.state.policy, min(rounds, ROUNDS_AUDITED_MAX)))
        arbiter.state.policy = found[0]
        return arbiter

    replayed = replay_with(path, make)
    audit = Audit(rounds=found[0].rounds, contested=found[0].contested)
    if replayed.first_difference is None:
        calls = found[0].sample()
        progress(f"{audit.rounds:,} rounds stepped, {audit.contested:,} of them contested; {len(calls):,} to audit")
        for k, call in enumerate(calls, start=1):
            audit_call(audit, call)
            progress(f"{k} of {len(calls)} rounds audited, {audit.auctions:,} auctions held again")
    return audit, replayed


def audit_call(audit: Audit, call: Call) -> None:
    """Let each bidder of one auction try each lie."""
    settings = replace(call.market.settings, payments=True)
    call = replace(call, market=replace(call.market, settings=settings))
    truth = call.hold(call.bids)
    audit.audited += 1
    audit.bids += len(call.bids)
    audit.auctions += 1
    for app in call.bidders:
        honest, weight = _values(call, app, truth), call.weights.get(app.app_id, 1.0)
        known: dict[Bid, Mapping[Ground, float]] = {}
        for about in About:
            outcomes: dict[float, Mapping[Ground, float]] = {}
            for lie in all_lies(about):
                bid = replace(lied_bid(call.market, app, lie), weight=weight)
                if bid in call.bids:
                    audit.silent += 1
                    continue
                if bid not in known:
                    known[bid] = _values(call, app, call.hold(_with(call.bids, bid)))
                    audit.auctions += 1
                outcomes[lie.factor] = known[bid]
            audit.gains += [_best(call, app, truth, honest, outcomes, about, ground) for ground in Ground]


def _with(bids: tuple[Bid, ...], other: Bid) -> tuple[Bid, ...]:
    return tuple(other if bid.app_id == other.app_id else bid for bid in bids)


def _best(
    call: Call,
    app: MarketApp,
    truth: Outcome,
    honest: Mapping[Ground, float],
    outcomes: Mapping[float, Mapping[Ground, float]],
    about: About,
    ground: Ground,
) -> Gain:
    """The lie that leaves the app with the least rho, the first of equal ones; the truth where none leaves it with less."""
    rho, factor = min([(honest[ground], 1.0), *((values[ground], factor) for factor, values in outcomes.items())])
    is_better = honest[ground] / rho - 1.0 > GAIN_MIN
    paid = next((p for p in truth.payments if p.app_id == app.app_id), None)
    bracket = 1.0 if paid is None else paid.share_max / paid.share
    return Gain(
        round_no=call.market.round_no,
        app_id=app.app_id,
        about=about,
        ground=ground,
        gain=honest[ground] / rho - 1.0 if is_better else 0.0,
        factor=factor if is_better else 1.0,
        rho_true=honest[ground],
        rho_lied=rho if is_better else honest[ground],
        open_share=exp(truth.solution.gap) * bracket - 1.0,
    )


def _values(call: Call, app: MarketApp, outcome: Outcome) -> Mapping[Ground, float]:
    """The rho that an outcome leaves the app with, by its true table, on each ground."""
    unpaid = without_payments(outcome)
    won = ending_rho(call.market, app, unpaid.kept.get(app.app_id, {}))
    share = next((p.share_max for p in outcome.payments if p.app_id == app.app_id), 1.0)
    return {
        Ground.UNPAID: won,
        Ground.PAID: ending_rho(call.market, app, outcome.kept.get(app.app_id, {})),
        Ground.EXACT: won / share,
        Ground.UNPAID_REST: ending_rho(call.market, app, _in_all(call, app, unpaid)),
        Ground.PAID_REST: ending_rho(call.market, app, _in_all(call, app, outcome)),
    }


def without_payments(outcome: Outcome) -> Outcome:
    """The same winners, who keep all that they win."""
    kept = {win.app_id: win.gpus for win in outcome.solution.wins if win.row}
    return replace(outcome, payments=(), kept=kept, withheld=())


def _in_all(call: Call, app: MarketApp, outcome: Outcome) -> Placement:
    """What the app has of the whole round: kept and handed out."""
    kept = outcome.kept.get(app.app_id, {})
    rest = call.hand_out(outcome).by_app().get(app.app_id, {})
    both: dict[JobId, tuple[GpuId, ...]] = {}
    for job_id in sorted({*kept, *rest}):
        both[job_id] = tuple(sorted((*kept.get(job_id, ()), *rest.get(job_id, ()))))
    return both
