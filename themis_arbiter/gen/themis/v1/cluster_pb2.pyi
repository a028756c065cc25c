from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BridgeMessage(_message.Message):
    __slots__ = ("hello", "report", "lease_reply")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    LEASE_REPLY_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    report: Report
    lease_reply: LeaseReply
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., lease_reply: _Optional[_Union[LeaseReply, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "cluster_id", "start_id", "plugin_version", "rm_version", "rm_now_ms")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    START_ID_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    RM_VERSION_FIELD_NUMBER: _ClassVar[int]
    RM_NOW_MS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    cluster_id: str
    start_id: str
    plugin_version: str
    rm_version: str
    rm_now_ms: int
    def __init__(self, protocol: _Optional[int] = ..., cluster_id: _Optional[str] = ..., start_id: _Optional[str] = ..., plugin_version: _Optional[str] = ..., rm_version: _Optional[str] = ..., rm_now_ms: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("start_id", "seq", "is_full", "needs_resync", "rm_now_ms", "nodes", "applications", "containers", "lease_epoch", "lease_seq")
    START_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    NEEDS_RESYNC_FIELD_NUMBER: _ClassVar[int]
    RM_NOW_MS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    LEASE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_SEQ_FIELD_NUMBER: _ClassVar[int]
    start_id: str
    seq: int
    is_full: bool
    needs_resync: bool
    rm_now_ms: int
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    applications: _containers.RepeatedCompositeFieldContainer[Application]
    containers: _containers.RepeatedCompositeFieldContainer[Container]
    lease_epoch: int
    lease_seq: int
    def __init__(self, start_id: _Optional[str] = ..., seq: _Optional[int] = ..., is_full: _Optional[bool] = ..., needs_resync: _Optional[bool] = ..., rm_now_ms: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., applications: _Optional[_Iterable[_Union[Application, _Mapping]]] = ..., containers: _Optional[_Iterable[_Union[Container, _Mapping]]] = ..., lease_epoch: _Optional[int] = ..., lease_seq: _Optional[int] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("node", "rack", "gpus_total", "memory_free_mb", "vcores_free", "state")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    GPUS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FREE_MB_FIELD_NUMBER: _ClassVar[int]
    VCORES_FREE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    node: str
    rack: str
    gpus_total: int
    memory_free_mb: int
    vcores_free: int
    state: str
    def __init__(self, node: _Optional[str] = ..., rack: _Optional[str] = ..., gpus_total: _Optional[int] = ..., memory_free_mb: _Optional[int] = ..., vcores_free: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("gpus", "count", "memory_mb", "vcores", "priority", "allocation_request_id")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    VCORES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    gpus: int
    count: int
    memory_mb: int
    vcores: int
    priority: int
    allocation_request_id: int
    def __init__(self, gpus: _Optional[int] = ..., count: _Optional[int] = ..., memory_mb: _Optional[int] = ..., vcores: _Optional[int] = ..., priority: _Optional[int] = ..., allocation_request_id: _Optional[int] = ...) -> None: ...

class Application(_message.Message):
    __slots__ = ("application_id", "name", "user", "queue", "tags", "submit_rm_ms", "state", "final_status", "finish_rm_ms", "progress", "asks")
    APPLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_RM_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FINAL_STATUS_FIELD_NUMBER: _ClassVar[int]
    FINISH_RM_MS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    application_id: str
    name: str
    user: str
    queue: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    submit_rm_ms: int
    state: str
    final_status: str
    finish_rm_ms: int
    progress: float
    asks: _containers.RepeatedCompositeFieldContainer[Ask]
    def __init__(self, application_id: _Optional[str] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., queue: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., submit_rm_ms: _Optional[int] = ..., state: _Optional[str] = ..., final_status: _Optional[str] = ..., finish_rm_ms: _Optional[int] = ..., progress: _Optional[float] = ..., asks: _Optional[_Iterable[_Union[Ask, _Mapping]]] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("container_id", "application_id", "node", "gpus", "is_am", "state", "exit_status", "created_rm_ms", "finished_rm_ms", "ended_by")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    IS_AM_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_RM_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_RM_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_BY_FIELD_NUMBER: _ClassVar[int]
    container_id: str
    application_id: str
    node: str
    gpus: int
    is_am: bool
    state: str
    exit_status: int
    created_rm_ms: int
    finished_rm_ms: int
    ended_by: str
    def __init__(self, container_id: _Optional[str] = ..., application_id: _Optional[str] = ..., node: _Optional[str] = ..., gpus: _Optional[int] = ..., is_am: _Optional[bool] = ..., state: _Optional[str] = ..., exit_status: _Optional[int] = ..., created_rm_ms: _Optional[int] = ..., finished_rm_ms: _Optional[int] = ..., ended_by: _Optional[str] = ...) -> None: ...

class ArbiterMessage(_message.Message):
    __slots__ = ("leases", "diagnostics")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    leases: LeaseUpdate
    diagnostics: Diagnostics
    def __init__(self, leases: _Optional[_Union[LeaseUpdate, _Mapping]] = ..., diagnostics: _Optional[_Union[Diagnostics, _Mapping]] = ...) -> None: ...

class LeaseUpdate(_message.Message):
    __slots__ = ("epoch", "start_id", "seq", "is_full", "leases", "removed_lease_ids", "drains", "is_observing")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_LEASE_IDS_FIELD_NUMBER: _ClassVar[int]
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    IS_OBSERVING_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_id: str
    seq: int
    is_full: bool
    leases: _containers.RepeatedCompositeFieldContainer[GateLease]
    removed_lease_ids: _containers.RepeatedScalarFieldContainer[str]
    drains: _containers.RepeatedCompositeFieldContainer[Drain]
    is_observing: bool
    def __init__(self, epoch: _Optional[int] = ..., start_id: _Optional[str] = ..., seq: _Optional[int] = ..., is_full: _Optional[bool] = ..., leases: _Optional[_Iterable[_Union[GateLease, _Mapping]]] = ..., removed_lease_ids: _Optional[_Iterable[str]] = ..., drains: _Optional[_Iterable[_Union[Drain, _Mapping]]] = ..., is_observing: _Optional[bool] = ...) -> None: ...

class GateLease(_message.Message):
    __slots__ = ("lease_id", "application_id", "node", "gpus", "is_draining")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    application_id: str
    node: str
    gpus: int
    is_draining: bool
    def __init__(self, lease_id: _Optional[str] = ..., application_id: _Optional[str] = ..., node: _Optional[str] = ..., gpus: _Optional[int] = ..., is_draining: _Optional[bool] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("lease_ids", "kill_in_ms")
    LEASE_IDS_FIELD_NUMBER: _ClassVar[int]
    KILL_IN_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ids: _containers.RepeatedScalarFieldContainer[str]
    kill_in_ms: int
    def __init__(self, lease_ids: _Optional[_Iterable[str]] = ..., kill_in_ms: _Optional[int] = ...) -> None: ...

class LeaseReply(_message.Message):
    __slots__ = ("is_accepted", "reason", "epoch", "start_id", "seq")
    IS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    is_accepted: bool
    reason: str
    epoch: int
    start_id: str
    seq: int
    def __init__(self, is_accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., epoch: _Optional[int] = ..., start_id: _Optional[str] = ..., seq: _Optional[int] = ...) -> None: ...

class Diagnostics(_message.Message):
    __slots__ = ("start_id", "epoch", "by_application")
    class ByApplicationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    START_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BY_APPLICATION_FIELD_NUMBER: _ClassVar[int]
    start_id: str
    epoch: int
    by_application: _containers.ScalarMap[str, str]
    def __init__(self, start_id: _Optional[str] = ..., epoch: _Optional[int] = ..., by_application: _Optional[_Mapping[str, str]] = ...) -> None: ...
