import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from recall_service.stubs.recall.v1 import recall_pb2 as _recall_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoggedRecall(_message.Message):
    __slots__ = ("arrival_time", "request", "deadline_seconds", "status_code", "error_reason", "answer", "total_seconds", "server_version", "in_batch")
    ARRIVAL_TIME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    IN_BATCH_FIELD_NUMBER: _ClassVar[int]
    arrival_time: _timestamp_pb2.Timestamp
    request: _recall_pb2.RecallRequest
    deadline_seconds: float
    status_code: int
    error_reason: str
    answer: LoggedAnswer
    total_seconds: float
    server_version: str
    in_batch: bool
    def __init__(self, arrival_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., request: _Optional[_Union[_recall_pb2.RecallRequest, _Mapping]] = ..., deadline_seconds: _Optional[float] = ..., status_code: _Optional[int] = ..., error_reason: _Optional[str] = ..., answer: _Optional[_Union[LoggedAnswer, _Mapping]] = ..., total_seconds: _Optional[float] = ..., server_version: _Optional[str] = ..., in_batch: _Optional[bool] = ...) -> None: ...

class LoggedRecalls(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[LoggedRecall]
    def __init__(self, records: _Optional[_Iterable[_Union[LoggedRecall, _Mapping]]] = ...) -> None: ...

class LoggedAnswer(_message.Message):
    __slots__ = ("item_ids", "scores", "proven_count", "served_from", "completeness", "bundle", "bundle_version", "catalog_version", "score_space", "beam_width", "unknown_history_items", "timings", "unknown_excluded_items")
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    PROVEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SERVED_FROM_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CATALOG_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCORE_SPACE_FIELD_NUMBER: _ClassVar[int]
    BEAM_WIDTH_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_HISTORY_ITEMS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_EXCLUDED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    scores: _containers.RepeatedScalarFieldContainer[float]
    proven_count: int
    served_from: _recall_pb2.ServedFrom
    completeness: _recall_pb2.Completeness
    bundle: str
    bundle_version: str
    catalog_version: str
    score_space: _recall_pb2.ScoreSpace
    beam_width: int
    unknown_history_items: int
    timings: _recall_pb2.Timings
    unknown_excluded_items: int
    def __init__(self, item_ids: _Optional[_Iterable[str]] = ..., scores: _Optional[_Iterable[float]] = ..., proven_count: _Optional[int] = ..., served_from: _Optional[_Union[_recall_pb2.ServedFrom, str]] = ..., completeness: _Optional[_Union[_recall_pb2.Completeness, _Mapping]] = ..., bundle: _Optional[str] = ..., bundle_version: _Optional[str] = ..., catalog_version: _Optional[str] = ..., score_space: _Optional[_Union[_recall_pb2.ScoreSpace, str]] = ..., beam_width: _Optional[int] = ..., unknown_history_items: _Optional[int] = ..., timings: _Optional[_Union[_recall_pb2.Timings, _Mapping]] = ..., unknown_excluded_items: _Optional[int] = ...) -> None: ...
