from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class CachedAnswer(_message.Message):
    __slots__ = ("format_version", "key_digest", "payload_checksum", "payload", "fresh_until_unix_ms")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    KEY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    FRESH_UNTIL_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    key_digest: bytes
    payload_checksum: int
    payload: bytes
    fresh_until_unix_ms: int
    def __init__(self, format_version: _Optional[int] = ..., key_digest: _Optional[bytes] = ..., payload_checksum: _Optional[int] = ..., payload: _Optional[bytes] = ..., fresh_until_unix_ms: _Optional[int] = ...) -> None: ...

class CachedPayload(_message.Message):
    __slots__ = ("item_ids", "scores", "num_levels", "sids", "step_log_probs", "step_ranks", "proven_count", "bundle", "bundle_version", "catalog_version", "score_space", "beam_width", "unknown_history_items", "unknown_excluded_items")
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    NUM_LEVELS_FIELD_NUMBER: _ClassVar[int]
    SIDS_FIELD_NUMBER: _ClassVar[int]
    STEP_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    STEP_RANKS_FIELD_NUMBER: _ClassVar[int]
    PROVEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CATALOG_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCORE_SPACE_FIELD_NUMBER: _ClassVar[int]
    BEAM_WIDTH_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_HISTORY_ITEMS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_EXCLUDED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    scores: bytes
    num_levels: int
    sids: bytes
    step_log_probs: bytes
    step_ranks: bytes
    proven_count: int
    bundle: str
    bundle_version: str
    catalog_version: str
    score_space: str
    beam_width: int
    unknown_history_items: int
    unknown_excluded_items: int
    def __init__(self, item_ids: _Optional[_Iterable[str]] = ..., scores: _Optional[bytes] = ..., num_levels: _Optional[int] = ..., sids: _Optional[bytes] = ..., step_log_probs: _Optional[bytes] = ..., step_ranks: _Optional[bytes] = ..., proven_count: _Optional[int] = ..., bundle: _Optional[str] = ..., bundle_version: _Optional[str] = ..., catalog_version: _Optional[str] = ..., score_space: _Optional[str] = ..., beam_width: _Optional[int] = ..., unknown_history_items: _Optional[int] = ..., unknown_excluded_items: _Optional[int] = ...) -> None: ...
