from recall_service.stubs.recall.v1 import recall_pb2 as _recall_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListBundlesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBundlesResponse(_message.Message):
    __slots__ = ("bundles", "serving")
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    bundles: _containers.RepeatedCompositeFieldContainer[BundleState]
    serving: bool
    def __init__(self, bundles: _Optional[_Iterable[_Union[BundleState, _Mapping]]] = ..., serving: _Optional[bool] = ...) -> None: ...

class BundleState(_message.Message):
    __slots__ = ("info", "waiting_requests", "running_requests", "stuck")
    INFO_FIELD_NUMBER: _ClassVar[int]
    WAITING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    info: _recall_pb2.BundleInfo
    waiting_requests: int
    running_requests: int
    stuck: bool
    def __init__(self, info: _Optional[_Union[_recall_pb2.BundleInfo, _Mapping]] = ..., waiting_requests: _Optional[int] = ..., running_requests: _Optional[int] = ..., stuck: _Optional[bool] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("at_most_seconds",)
    AT_MOST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    at_most_seconds: float
    def __init__(self, at_most_seconds: _Optional[float] = ...) -> None: ...
