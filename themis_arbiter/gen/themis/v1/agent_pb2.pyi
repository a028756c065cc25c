from themis_arbiter.gen.themis.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProgressRequest(_message.Message):
    __slots__ = ("app_id", "job_id", "remaining_gpu_s")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REMAINING_GPU_S_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    job_id: str
    remaining_gpu_s: float
    def __init__(self, app_id: _Optional[str] = ..., job_id: _Optional[str] = ..., remaining_gpu_s: _Optional[float] = ...) -> None: ...

class ProgressReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchLeasesRequest(_message.Message):
    __slots__ = ("app_id",)
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    def __init__(self, app_id: _Optional[str] = ...) -> None: ...

class LeaseView(_message.Message):
    __slots__ = ("now_ms", "leases")
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    now_ms: int
    leases: _containers.RepeatedCompositeFieldContainer[_types_pb2.Lease]
    def __init__(self, now_ms: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[_types_pb2.Lease, _Mapping]]] = ...) -> None: ...
