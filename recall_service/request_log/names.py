"""Enums of the contract by the names that the client gives them: without their prefix, and nothing for unspecified."""

import grpc
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from recall_service.stubs.recall.v1 import recall_pb2

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


def _names(enum: EnumTypeWrapper, prefix: str) -> dict[int, str]:
    return {number: name.removeprefix(prefix) if number else "" for name, number in enum.items()}


SERVED_FROM = _names(recall_pb2.ServedFrom, "SERVED_FROM_")
SHORT_REASONS = _names(recall_pb2.ShortReason, "SHORT_REASON_")
SCORE_SPACES = _names(recall_pb2.ScoreSpace, "SCORE_SPACE_")
SEARCH_MODES = _names(recall_pb2.SearchMode, "SEARCH_MODE_")
CACHE_MODES = _names(recall_pb2.CacheMode, "CACHE_MODE_")


def code_name(code: int) -> str:
    """A gRPC status code by name; one that is not known, as a number."""
    return _CODES.get(code, str(code))
