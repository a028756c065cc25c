from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Locality(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOCALITY_UNSPECIFIED: _ClassVar[Locality]
    SLOT: _ClassVar[Locality]
    MACHINE: _ClassVar[Locality]
    RACK: _ClassVar[Locality]
    CLUSTER: _ClassVar[Locality]
LOCALITY_UNSPECIFIED: Locality
SLOT: Locality
MACHINE: Locality
RACK: Locality
CLUSTER: Locality

class Lease(_message.Message):
    __slots__ = ("lease_id", "grant_id", "app_id", "job_id", "node", "gpu", "state", "start_ms", "end_ms", "epoch", "round", "is_next")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_ID_FIELD_NUMBER: _ClassVar[int]
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    IS_NEXT_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    grant_id: str
    app_id: str
    job_id: str
    node: str
    gpu: int
    state: str
    start_ms: int
    end_ms: int
    epoch: int
    round: int
    is_next: bool
    def __init__(self, lease_id: _Optional[str] = ..., grant_id: _Optional[str] = ..., app_id: _Optional[str] = ..., job_id: _Optional[str] = ..., node: _Optional[str] = ..., gpu: _Optional[int] = ..., state: _Optional[str] = ..., start_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., is_next: _Optional[bool] = ...) -> None: ...
