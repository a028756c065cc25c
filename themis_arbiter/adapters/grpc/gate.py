"""The core's effects as the messages that the plugin's gate reads.

The core's `seq` goes out unchanged. A message without content (a sign of life) quotes the last one again.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias, assert_never

from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, WithdrawLeases
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.types import LeaseId, Millis
from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb
from themis_arbiter.gen.themis.v1 import types_pb2

GateEffect: TypeAlias = SyncLeases | GrantGpus | RequestDrain | WithdrawLeases


def lease_update(effect: GateEffect, now_ms: Millis) -> pb.LeaseUpdate:
    """What to send for `effect`; deadlines are told as the time that is left at `now_ms`."""
    message = pb.LeaseUpdate(epoch=effect.epoch, start_id=effect.start_id, seq=effect.seq)
    match effect:
        case SyncLeases():
            message.is_full = True
            message.is_observing = effect.is_observing
            draining = {lease_id for lease_id, _ in effect.drains}
            message.leases.extend(_gate_lease(lease, lease.lease_id in draining) for lease in effect.leases)
            message.drains.extend(_drains(effect.drains, now_ms))
        case GrantGpus():
            message.leases.extend(_gate_lease(lease, False) for lease in effect.leases)
        case RequestDrain():
            message.drains.extend(_drains(((i, effect.deadline_ms) for i in effect.lease_ids), now_ms))
        case WithdrawLeases():
            message.removed_lease_ids.extend(effect.lease_ids)
        case _:
            assert_never(effect)
    return message


def _gate_lease(lease: Lease, is_draining: bool) -> pb.GateLease:
    return pb.GateLease(
        lease_id=lease.lease_id,
        application_id=lease.job_id,
        node=lease.gpu.rpartition(":")[0],
        gpus=1,
        is_draining=is_draining or lease.state is LeaseState.DRAINING,
    )


def _drains(deadlines: Iterable[tuple[LeaseId, Millis]], now_ms: Millis) -> list[pb.Drain]:
    """One entry for each deadline, soonest first."""
    by_deadline = groupby(sorted((deadline, lease_id) for lease_id, deadline in deadlines), key=itemgetter(0))
    return [
        pb.Drain(lease_ids=[lease_id for _, lease_id in group], kill_in_ms=max(0, deadline - now_ms))
        for deadline, group in by_deadline
    ]


def lease_message(lease: Lease, is_next: bool) -> types_pb2.Lease:
    """A lease as people and agents see it."""
    node, _, ordinal = lease.gpu.rpartition(":")
    return types_pb2.Lease(
        lease_id=lease.lease_id,
        grant_id=lease.grant_id,
        app_id=lease.app_id,
        job_id=lease.job_id,
        node=node,
        gpu=int(ordinal),
        state=lease.state.value,
        start_ms=lease.start_ms,
        end_ms=lease.end_ms,
        epoch=lease.epoch,
        round=lease.round_no,
        is_next=is_next,
    )
