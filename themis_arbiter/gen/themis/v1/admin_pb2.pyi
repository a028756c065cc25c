from themis_arbiter.gen.themis.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ActRequest(_message.Message):
    __slots__ = ("verb", "target", "value", "actor", "request_id")
    VERB_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    verb: str
    target: str
    value: float
    actor: str
    request_id: str
    def __init__(self, verb: _Optional[str] = ..., target: _Optional[str] = ..., value: _Optional[float] = ..., actor: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ActReply(_message.Message):
    __slots__ = ("is_done", "text")
    IS_DONE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    is_done: bool
    text: str
    def __init__(self, is_done: _Optional[bool] = ..., text: _Optional[str] = ...) -> None: ...

class ListAuditRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class ListAuditReply(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("at_ms", "request_id", "actor", "verb", "target", "value", "is_done", "text")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    IS_DONE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    request_id: str
    actor: str
    verb: str
    target: str
    value: float
    is_done: bool
    text: str
    def __init__(self, at_ms: _Optional[int] = ..., request_id: _Optional[str] = ..., actor: _Optional[str] = ..., verb: _Optional[str] = ..., target: _Optional[str] = ..., value: _Optional[float] = ..., is_done: _Optional[bool] = ..., text: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("version", "policy", "is_leader", "epoch", "is_bridge_connected", "now_ms", "lease_ms", "notice_ms", "rho_floor_ms", "http_address", "is_paused", "is_observing", "leader_address", "standing_by", "differences")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_BRIDGE_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    NOTICE_MS_FIELD_NUMBER: _ClassVar[int]
    RHO_FLOOR_MS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    IS_OBSERVING_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STANDING_BY_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    version: str
    policy: str
    is_leader: bool
    epoch: int
    is_bridge_connected: bool
    now_ms: int
    lease_ms: int
    notice_ms: int
    rho_floor_ms: int
    http_address: str
    is_paused: bool
    is_observing: bool
    leader_address: str
    standing_by: str
    differences: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., policy: _Optional[str] = ..., is_leader: _Optional[bool] = ..., epoch: _Optional[int] = ..., is_bridge_connected: _Optional[bool] = ..., now_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., notice_ms: _Optional[int] = ..., rho_floor_ms: _Optional[int] = ..., http_address: _Optional[str] = ..., is_paused: _Optional[bool] = ..., is_observing: _Optional[bool] = ..., leader_address: _Optional[str] = ..., standing_by: _Optional[str] = ..., differences: _Optional[_Iterable[str]] = ...) -> None: ...

class ListAppsRequest(_message.Message):
    __slots__ = ("include_ended",)
    INCLUDE_ENDED_FIELD_NUMBER: _ClassVar[int]
    include_ended: bool
    def __init__(self, include_ended: _Optional[bool] = ...) -> None: ...

class ListAppsReply(_message.Message):
    __slots__ = ("apps", "now_ms")
    APPS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    apps: _containers.RepeatedCompositeFieldContainer[AppView]
    now_ms: int
    def __init__(self, apps: _Optional[_Iterable[_Union[AppView, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class AppView(_message.Message):
    __slots__ = ("app_id", "user", "queue", "state", "rho", "rho_forecast", "arrival_ms", "finish_ms", "t_independent_s", "work_gpu_s", "is_work_estimated", "attained_gpu_s", "gpus_held", "gpus_wanted", "gpus_by_node", "leases_granted", "leases_renewed", "leases_ended", "jobs", "final_status")
    class GpusByNodeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    RHO_FORECAST_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_MS_FIELD_NUMBER: _ClassVar[int]
    FINISH_MS_FIELD_NUMBER: _ClassVar[int]
    T_INDEPENDENT_S_FIELD_NUMBER: _ClassVar[int]
    WORK_GPU_S_FIELD_NUMBER: _ClassVar[int]
    IS_WORK_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    ATTAINED_GPU_S_FIELD_NUMBER: _ClassVar[int]
    GPUS_HELD_FIELD_NUMBER: _ClassVar[int]
    GPUS_WANTED_FIELD_NUMBER: _ClassVar[int]
    GPUS_BY_NODE_FIELD_NUMBER: _ClassVar[int]
    LEASES_GRANTED_FIELD_NUMBER: _ClassVar[int]
    LEASES_RENEWED_FIELD_NUMBER: _ClassVar[int]
    LEASES_ENDED_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FINAL_STATUS_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    user: str
    queue: str
    state: str
    rho: float
    rho_forecast: float
    arrival_ms: int
    finish_ms: int
    t_independent_s: float
    work_gpu_s: float
    is_work_estimated: bool
    attained_gpu_s: float
    gpus_held: int
    gpus_wanted: int
    gpus_by_node: _containers.ScalarMap[str, int]
    leases_granted: int
    leases_renewed: int
    leases_ended: int
    jobs: _containers.RepeatedCompositeFieldContainer[JobView]
    final_status: str
    def __init__(self, app_id: _Optional[str] = ..., user: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[str] = ..., rho: _Optional[float] = ..., rho_forecast: _Optional[float] = ..., arrival_ms: _Optional[int] = ..., finish_ms: _Optional[int] = ..., t_independent_s: _Optional[float] = ..., work_gpu_s: _Optional[float] = ..., is_work_estimated: _Optional[bool] = ..., attained_gpu_s: _Optional[float] = ..., gpus_held: _Optional[int] = ..., gpus_wanted: _Optional[int] = ..., gpus_by_node: _Optional[_Mapping[str, int]] = ..., leases_granted: _Optional[int] = ..., leases_renewed: _Optional[int] = ..., leases_ended: _Optional[int] = ..., jobs: _Optional[_Iterable[_Union[JobView, _Mapping]]] = ..., final_status: _Optional[str] = ...) -> None: ...

class JobView(_message.Message):
    __slots__ = ("job_id", "gang", "max_gpus", "gpus_held", "state")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    MAX_GPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_HELD_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    gang: int
    max_gpus: int
    gpus_held: int
    state: str
    def __init__(self, job_id: _Optional[str] = ..., gang: _Optional[int] = ..., max_gpus: _Optional[int] = ..., gpus_held: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("app_id",)
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    def __init__(self, app_id: _Optional[str] = ...) -> None: ...

class ListLeasesReply(_message.Message):
    __slots__ = ("leases", "now_ms")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[_types_pb2.Lease]
    now_ms: int
    def __init__(self, leases: _Optional[_Iterable[_Union[_types_pb2.Lease, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class ListRoundsRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class ListRoundsReply(_message.Message):
    __slots__ = ("decision_json",)
    DECISION_JSON_FIELD_NUMBER: _ClassVar[int]
    decision_json: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, decision_json: _Optional[_Iterable[str]] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesReply(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeView]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeView, _Mapping]]] = ...) -> None: ...

class NodeView(_message.Message):
    __slots__ = ("node", "rack", "state", "gpus_total", "gpus_leased", "gpus_free", "gpus_used", "is_oversubscribed", "gpu_type")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GPUS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    GPUS_LEASED_FIELD_NUMBER: _ClassVar[int]
    GPUS_FREE_FIELD_NUMBER: _ClassVar[int]
    GPUS_USED_FIELD_NUMBER: _ClassVar[int]
    IS_OVERSUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    node: str
    rack: str
    state: str
    gpus_total: int
    gpus_leased: int
    gpus_free: int
    gpus_used: int
    is_oversubscribed: bool
    gpu_type: str
    def __init__(self, node: _Optional[str] = ..., rack: _Optional[str] = ..., state: _Optional[str] = ..., gpus_total: _Optional[int] = ..., gpus_leased: _Optional[int] = ..., gpus_free: _Optional[int] = ..., gpus_used: _Optional[int] = ..., is_oversubscribed: _Optional[bool] = ..., gpu_type: _Optional[str] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("app_id",)
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    def __init__(self, app_id: _Optional[str] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("app_id", "lines")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, app_id: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ...) -> None: ...
