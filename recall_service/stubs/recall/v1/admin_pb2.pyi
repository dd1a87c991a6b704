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

class LoadCatalogRequest(_message.Message):
    __slots__ = ("bundle", "version")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    version: str
    def __init__(self, bundle: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class LoadCatalogResponse(_message.Message):
    __slots__ = ("catalog",)
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    catalog: CatalogState
    def __init__(self, catalog: _Optional[_Union[CatalogState, _Mapping]] = ...) -> None: ...

class ActivateCatalogRequest(_message.Message):
    __slots__ = ("bundle", "version")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    version: str
    def __init__(self, bundle: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class ActivateCatalogResponse(_message.Message):
    __slots__ = ("catalog", "previous_version")
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    catalog: CatalogState
    previous_version: str
    def __init__(self, catalog: _Optional[_Union[CatalogState, _Mapping]] = ..., previous_version: _Optional[str] = ...) -> None: ...

class RollbackCatalogRequest(_message.Message):
    __slots__ = ("bundle",)
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    def __init__(self, bundle: _Optional[str] = ...) -> None: ...

class RollbackCatalogResponse(_message.Message):
    __slots__ = ("catalog", "previous_version")
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    catalog: CatalogState
    previous_version: str
    def __init__(self, catalog: _Optional[_Union[CatalogState, _Mapping]] = ..., previous_version: _Optional[str] = ...) -> None: ...

class CatalogState(_message.Message):
    __slots__ = ("bundle", "version", "items", "sids")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SIDS_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    version: str
    items: int
    sids: int
    def __init__(self, bundle: _Optional[str] = ..., version: _Optional[str] = ..., items: _Optional[int] = ..., sids: _Optional[int] = ...) -> None: ...

class ApplyItemUpdatesRequest(_message.Message):
    __slots__ = ("bundle", "upserts", "removals")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    REMOVALS_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    upserts: _containers.RepeatedCompositeFieldContainer[ItemUpsert]
    removals: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bundle: _Optional[str] = ..., upserts: _Optional[_Iterable[_Union[ItemUpsert, _Mapping]]] = ..., removals: _Optional[_Iterable[str]] = ...) -> None: ...

class ItemUpsert(_message.Message):
    __slots__ = ("item_id", "sid", "attributes", "cleared_attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _recall_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_recall_pb2.Value, _Mapping]] = ...) -> None: ...
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    SID_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    CLEARED_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    sid: _containers.RepeatedScalarFieldContainer[int]
    attributes: _containers.MessageMap[str, _recall_pb2.Value]
    cleared_attributes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, item_id: _Optional[str] = ..., sid: _Optional[_Iterable[int]] = ..., attributes: _Optional[_Mapping[str, _recall_pb2.Value]] = ..., cleared_attributes: _Optional[_Iterable[str]] = ...) -> None: ...

class ApplyItemUpdatesResponse(_message.Message):
    __slots__ = ("catalog", "added", "changed", "removed", "unknown_removals")
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_REMOVALS_FIELD_NUMBER: _ClassVar[int]
    catalog: CatalogState
    added: int
    changed: int
    removed: int
    unknown_removals: int
    def __init__(self, catalog: _Optional[_Union[CatalogState, _Mapping]] = ..., added: _Optional[int] = ..., changed: _Optional[int] = ..., removed: _Optional[int] = ..., unknown_removals: _Optional[int] = ...) -> None: ...

class ReloadBundleRequest(_message.Message):
    __slots__ = ("bundle",)
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    def __init__(self, bundle: _Optional[str] = ...) -> None: ...

class ReloadBundleResponse(_message.Message):
    __slots__ = ("info", "previous_version")
    INFO_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    info: _recall_pb2.BundleInfo
    previous_version: str
    def __init__(self, info: _Optional[_Union[_recall_pb2.BundleInfo, _Mapping]] = ..., previous_version: _Optional[str] = ...) -> None: ...
