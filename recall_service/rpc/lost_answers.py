"""Answers that find nobody: the caller's deadline passed, or it left, in the moment they were sent.

gRPC logs each as an error, with a traceback. It is no fault of ours, the caller's end is counted anyway, and under
overload there are thousands.
"""

import logging

_LOGGER_OF_GRPC = "grpc._cython.cygrpc"
_ERROR_OF_GRPC = "ExecuteBatchError"


def quiet_lost_answers() -> None:
    """Leave them out of the logs of this process, from now on."""
    logging.getLogger(_LOGGER_OF_GRPC).addFilter(_is_worth_a_line)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ != _ERROR_OF_GRPC
