import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttributeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTRIBUTE_TYPE_UNSPECIFIED: _ClassVar[AttributeType]
    ATTRIBUTE_TYPE_TEXT: _ClassVar[AttributeType]
    ATTRIBUTE_TYPE_INTEGER: _ClassVar[AttributeType]
    ATTRIBUTE_TYPE_NUMBER: _ClassVar[AttributeType]
    ATTRIBUTE_TYPE_BOOLEAN: _ClassVar[AttributeType]

class CacheMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_MODE_UNSPECIFIED: _ClassVar[CacheMode]
    CACHE_MODE_USE: _ClassVar[CacheMode]
    CACHE_MODE_REFRESH: _ClassVar[CacheMode]
    CACHE_MODE_BYPASS: _ClassVar[CacheMode]

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_LOW: _ClassVar[Priority]
    PRIORITY_NORMAL: _ClassVar[Priority]
    PRIORITY_HIGH: _ClassVar[Priority]

class SearchMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_MODE_UNSPECIFIED: _ClassVar[SearchMode]
    SEARCH_MODE_BEAM: _ClassVar[SearchMode]
    SEARCH_MODE_PROVEN: _ClassVar[SearchMode]

class CompletenessState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPLETENESS_STATE_UNSPECIFIED: _ClassVar[CompletenessState]
    COMPLETENESS_STATE_COMPLETE: _ClassVar[CompletenessState]
    COMPLETENESS_STATE_SHORT: _ClassVar[CompletenessState]

class ShortReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHORT_REASON_UNSPECIFIED: _ClassVar[ShortReason]
    SHORT_REASON_CATALOG_EXHAUSTED: _ClassVar[ShortReason]
    SHORT_REASON_BEAM_TOO_NARROW: _ClassVar[ShortReason]
    SHORT_REASON_FILTER_TOO_NARROW: _ClassVar[ShortReason]

class ServedFrom(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVED_FROM_UNSPECIFIED: _ClassVar[ServedFrom]
    SERVED_FROM_ENGINE: _ClassVar[ServedFrom]
    SERVED_FROM_LOCAL_CACHE: _ClassVar[ServedFrom]
    SERVED_FROM_SHARED_CACHE: _ClassVar[ServedFrom]

class ScoreSpace(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCORE_SPACE_UNSPECIFIED: _ClassVar[ScoreSpace]
    SCORE_SPACE_VOCABULARY: _ClassVar[ScoreSpace]
    SCORE_SPACE_CODEBOOK: _ClassVar[ScoreSpace]
    SCORE_SPACE_CATALOG: _ClassVar[ScoreSpace]
ATTRIBUTE_TYPE_UNSPECIFIED: AttributeType
ATTRIBUTE_TYPE_TEXT: AttributeType
ATTRIBUTE_TYPE_INTEGER: AttributeType
ATTRIBUTE_TYPE_NUMBER: AttributeType
ATTRIBUTE_TYPE_BOOLEAN: AttributeType
CACHE_MODE_UNSPECIFIED: CacheMode
CACHE_MODE_USE: CacheMode
CACHE_MODE_REFRESH: CacheMode
CACHE_MODE_BYPASS: CacheMode
PRIORITY_UNSPECIFIED: Priority
PRIORITY_LOW: Priority
PRIORITY_NORMAL: Priority
PRIORITY_HIGH: Priority
SEARCH_MODE_UNSPECIFIED: SearchMode
SEARCH_MODE_BEAM: SearchMode
SEARCH_MODE_PROVEN: SearchMode
COMPLETENESS_STATE_UNSPECIFIED: CompletenessState
COMPLETENESS_STATE_COMPLETE: CompletenessState
COMPLETENESS_STATE_SHORT: CompletenessState
SHORT_REASON_UNSPECIFIED: ShortReason
SHORT_REASON_CATALOG_EXHAUSTED: ShortReason
SHORT_REASON_BEAM_TOO_NARROW: ShortReason
SHORT_REASON_FILTER_TOO_NARROW: ShortReason
SERVED_FROM_UNSPECIFIED: ServedFrom
SERVED_FROM_ENGINE: ServedFrom
SERVED_FROM_LOCAL_CACHE: ServedFrom
SERVED_FROM_SHARED_CACHE: ServedFrom
SCORE_SPACE_UNSPECIFIED: ScoreSpace
SCORE_SPACE_VOCABULARY: ScoreSpace
SCORE_SPACE_CODEBOOK: ScoreSpace
SCORE_SPACE_CATALOG: ScoreSpace

class RecallRequest(_message.Message):
    __slots__ = ("request_id", "user_id", "scene", "bundle", "history", "prompt", "num_items", "beam_width", "filter", "exclude_item_ids", "exclude_history", "cache_mode", "include_steps", "search_mode", "priority")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    SCENE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    NUM_ITEMS_FIELD_NUMBER: _ClassVar[int]
    BEAM_WIDTH_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_HISTORY_FIELD_NUMBER: _ClassVar[int]
    CACHE_MODE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_STEPS_FIELD_NUMBER: _ClassVar[int]
    SEARCH_MODE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    scene: str
    bundle: str
    history: ItemHistory
    prompt: TokenPrompt
    num_items: int
    beam_width: int
    filter: Filter
    exclude_item_ids: _containers.RepeatedScalarFieldContainer[str]
    exclude_history: bool
    cache_mode: CacheMode
    include_steps: bool
    search_mode: SearchMode
    priority: Priority
    def __init__(self, request_id: _Optional[str] = ..., user_id: _Optional[str] = ..., scene: _Optional[str] = ..., bundle: _Optional[str] = ..., history: _Optional[_Union[ItemHistory, _Mapping]] = ..., prompt: _Optional[_Union[TokenPrompt, _Mapping]] = ..., num_items: _Optional[int] = ..., beam_width: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., exclude_item_ids: _Optional[_Iterable[str]] = ..., exclude_history: _Optional[bool] = ..., cache_mode: _Optional[_Union[CacheMode, str]] = ..., include_steps: _Optional[bool] = ..., search_mode: _Optional[_Union[SearchMode, str]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class ItemHistory(_message.Message):
    __slots__ = ("item_ids",)
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class TokenPrompt(_message.Message):
    __slots__ = ("token_ids",)
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("predicates",)
    PREDICATES_FIELD_NUMBER: _ClassVar[int]
    predicates: _containers.RepeatedCompositeFieldContainer[Predicate]
    def __init__(self, predicates: _Optional[_Iterable[_Union[Predicate, _Mapping]]] = ...) -> None: ...

class Predicate(_message.Message):
    __slots__ = ("attribute", "not_in", "range")
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    IN_FIELD_NUMBER: _ClassVar[int]
    NOT_IN_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    attribute: str
    not_in: ValueList
    range: Range
    def __init__(self, attribute: _Optional[str] = ..., not_in: _Optional[_Union[ValueList, _Mapping]] = ..., range: _Optional[_Union[Range, _Mapping]] = ..., **kwargs) -> None: ...

class ValueList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("at_least", "above", "at_most", "below")
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    ABOVE_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    at_least: Value
    above: Value
    at_most: Value
    below: Value
    def __init__(self, at_least: _Optional[_Union[Value, _Mapping]] = ..., above: _Optional[_Union[Value, _Mapping]] = ..., at_most: _Optional[_Union[Value, _Mapping]] = ..., below: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("text", "integer", "number", "boolean")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    text: str
    integer: int
    number: float
    boolean: bool
    def __init__(self, text: _Optional[str] = ..., integer: _Optional[int] = ..., number: _Optional[float] = ..., boolean: _Optional[bool] = ...) -> None: ...

class RecallResponse(_message.Message):
    __slots__ = ("request_id", "items", "completeness", "proven_count", "served_from", "bundle_version", "catalog_version", "score_space", "beam_width", "unknown_history_items", "attribution_token", "timings", "rows_forwarded", "bundle", "rows_skipped", "unknown_excluded_items")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    PROVEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SERVED_FROM_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CATALOG_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCORE_SPACE_FIELD_NUMBER: _ClassVar[int]
    BEAM_WIDTH_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_HISTORY_ITEMS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FORWARDED_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_EXCLUDED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    items: _containers.RepeatedCompositeFieldContainer[RecalledItem]
    completeness: Completeness
    proven_count: int
    served_from: ServedFrom
    bundle_version: str
    catalog_version: str
    score_space: ScoreSpace
    beam_width: int
    unknown_history_items: int
    attribution_token: str
    timings: Timings
    rows_forwarded: int
    bundle: str
    rows_skipped: int
    unknown_excluded_items: int
    def __init__(self, request_id: _Optional[str] = ..., items: _Optional[_Iterable[_Union[RecalledItem, _Mapping]]] = ..., completeness: _Optional[_Union[Completeness, _Mapping]] = ..., proven_count: _Optional[int] = ..., served_from: _Optional[_Union[ServedFrom, str]] = ..., bundle_version: _Optional[str] = ..., catalog_version: _Optional[str] = ..., score_space: _Optional[_Union[ScoreSpace, str]] = ..., beam_width: _Optional[int] = ..., unknown_history_items: _Optional[int] = ..., attribution_token: _Optional[str] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., rows_forwarded: _Optional[int] = ..., bundle: _Optional[str] = ..., rows_skipped: _Optional[int] = ..., unknown_excluded_items: _Optional[int] = ...) -> None: ...

class RecalledItem(_message.Message):
    __slots__ = ("item_id", "score", "sid", "step_log_probs", "step_ranks")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SID_FIELD_NUMBER: _ClassVar[int]
    STEP_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    STEP_RANKS_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    score: float
    sid: _containers.RepeatedScalarFieldContainer[int]
    step_log_probs: _containers.RepeatedScalarFieldContainer[float]
    step_ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, item_id: _Optional[str] = ..., score: _Optional[float] = ..., sid: _Optional[_Iterable[int]] = ..., step_log_probs: _Optional[_Iterable[float]] = ..., step_ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class Completeness(_message.Message):
    __slots__ = ("state", "short_reason")
    STATE_FIELD_NUMBER: _ClassVar[int]
    SHORT_REASON_FIELD_NUMBER: _ClassVar[int]
    state: CompletenessState
    short_reason: ShortReason
    def __init__(self, state: _Optional[_Union[CompletenessState, str]] = ..., short_reason: _Optional[_Union[ShortReason, str]] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_us", "prefill_us", "decode_us", "total_us")
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    PREFILL_US_FIELD_NUMBER: _ClassVar[int]
    DECODE_US_FIELD_NUMBER: _ClassVar[int]
    TOTAL_US_FIELD_NUMBER: _ClassVar[int]
    queue_us: int
    prefill_us: int
    decode_us: int
    total_us: int
    def __init__(self, queue_us: _Optional[int] = ..., prefill_us: _Optional[int] = ..., decode_us: _Optional[int] = ..., total_us: _Optional[int] = ...) -> None: ...

class BatchRecallRequest(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[RecallRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[RecallRequest, _Mapping]]] = ...) -> None: ...

class BatchRecallResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[BatchRecallResult]
    def __init__(self, results: _Optional[_Iterable[_Union[BatchRecallResult, _Mapping]]] = ...) -> None: ...

class BatchRecallResult(_message.Message):
    __slots__ = ("response", "failure")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    response: RecallResponse
    failure: RecallFailure
    def __init__(self, response: _Optional[_Union[RecallResponse, _Mapping]] = ..., failure: _Optional[_Union[RecallFailure, _Mapping]] = ...) -> None: ...

class RecallFailure(_message.Message):
    __slots__ = ("code", "message", "reason", "request_id", "retry_after", "limit")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    reason: str
    request_id: str
    retry_after: _duration_pb2.Duration
    limit: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limit: _Optional[str] = ...) -> None: ...

class GetServingInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServingInfoResponse(_message.Message):
    __slots__ = ("server_version", "bundles", "max_batch_requests")
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    server_version: str
    bundles: _containers.RepeatedCompositeFieldContainer[BundleInfo]
    max_batch_requests: int
    def __init__(self, server_version: _Optional[str] = ..., bundles: _Optional[_Iterable[_Union[BundleInfo, _Mapping]]] = ..., max_batch_requests: _Optional[int] = ...) -> None: ...

class BundleInfo(_message.Message):
    __slots__ = ("name", "version", "catalog_version", "catalog_items", "codebook_sizes", "score_space", "default_beam_width", "max_beam_width", "default_num_items", "max_num_items", "max_prompt_tokens", "max_history", "attributes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CATALOG_VERSION_FIELD_NUMBER: _ClassVar[int]
    CATALOG_ITEMS_FIELD_NUMBER: _ClassVar[int]
    CODEBOOK_SIZES_FIELD_NUMBER: _ClassVar[int]
    SCORE_SPACE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BEAM_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MAX_BEAM_WIDTH_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_NUM_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_HISTORY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    catalog_version: str
    catalog_items: int
    codebook_sizes: _containers.RepeatedScalarFieldContainer[int]
    score_space: ScoreSpace
    default_beam_width: int
    max_beam_width: int
    default_num_items: int
    max_num_items: int
    max_prompt_tokens: int
    max_history: int
    attributes: _containers.RepeatedCompositeFieldContainer[AttributeInfo]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., catalog_version: _Optional[str] = ..., catalog_items: _Optional[int] = ..., codebook_sizes: _Optional[_Iterable[int]] = ..., score_space: _Optional[_Union[ScoreSpace, str]] = ..., default_beam_width: _Optional[int] = ..., max_beam_width: _Optional[int] = ..., default_num_items: _Optional[int] = ..., max_num_items: _Optional[int] = ..., max_prompt_tokens: _Optional[int] = ..., max_history: _Optional[int] = ..., attributes: _Optional[_Iterable[_Union[AttributeInfo, _Mapping]]] = ...) -> None: ...

class AttributeInfo(_message.Message):
    __slots__ = ("name", "type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: AttributeType
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[AttributeType, str]] = ...) -> None: ...
