from google.protobuf import json_format

from tests.support.serving import lease
from themis_arbiter.adapters.grpc.gate import lease_message, lease_update
from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, WithdrawLeases
from themis_arbiter.core.lease import LeaseState
from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb

HEAD = {"epoch": "3", "start_id": "s", "seq": "7"}


def plain(message: pb.LeaseUpdate) -> object:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def test_a_sync_lists_all_leases_and_their_drains_by_deadline() -> None:
    leases = (lease(), lease("l2", state=LeaseState.DRAINING), lease("l3", gpu="n:2:1"), lease("l4"))
    drains = (("l4", 1_500), ("l2", 900), ("l3", 1_500))
    message = lease_update(SyncLeases(epoch=3, start_id="s", seq=7, leases=leases, drains=drains), now_ms=1_000)
    job = {"application_id": "application_1_0001", "gpus": 1}
    assert plain(message) == HEAD | {
        "is_full": True,
        "leases": [
            {"lease_id": "l1", "node": "n1"} | job,
            {"lease_id": "l2", "node": "n1", "is_draining": True} | job,
            {"lease_id": "l3", "node": "n:2", "is_draining": True} | job,
            {"lease_id": "l4", "node": "n1", "is_draining": True} | job,
        ],
        # A deadline that has passed is now, not before now.
        "drains": [{"lease_ids": ["l2"]}, {"lease_ids": ["l3", "l4"], "kill_in_ms": "500"}],
    }


def test_grants_drains_and_withdrawals() -> None:
    grant = lease_update(GrantGpus(epoch=3, start_id="s", seq=7, leases=(lease(),)), 0)
    assert [x.lease_id for x in grant.leases] == ["l1"]
    assert not grant.is_full
    drain = lease_update(RequestDrain(epoch=3, start_id="s", seq=7, lease_ids=("l1", "l2"), deadline_ms=60), 50)
    assert plain(drain) == HEAD | {"drains": [{"lease_ids": ["l1", "l2"], "kill_in_ms": "10"}]}
    withdraw = lease_update(WithdrawLeases(epoch=3, start_id="s", seq=7, lease_ids=("l1",)), 0)
    assert plain(withdraw) == HEAD | {"removed_lease_ids": ["l1"]}


def test_a_lease_for_people() -> None:
    message = lease_message(lease(gpu="host:8041:3"), is_next=True)
    assert (message.node, message.gpu, message.is_next, message.state) == ("host:8041", 3, True, "pending")
