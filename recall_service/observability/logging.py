"""Logging, set up in one place: structlog's loggers and the standard library's end in the same lines on stderr.

Whatever is logged, no line holds a password, a user's history or a prompt: they are withheld here, the last place
before the line is written, for callers forget. Knows nothing of who logs what.
"""

import logging
import re
import sys
from collections.abc import Sized

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# Logged by how many there are, never by which.
_WITHHELD = frozenset({"history", "prompt", "item_ids", "token_ids", "exclude_item_ids"})
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@]*@")  # of any URL in any text


def configure_logging(level: str, log_format: str) -> None:
    """Send logs of `level` (debug, info, warning, error) and above to stderr, as `log_format` json or console."""
    renderer: Processor = structlog.processors.JSONRenderer()
    if log_format == "console":
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    named: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=named,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,  # as text: structlog's own shows local variables, histories too
                withhold,
                renderer,
            ],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *named,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def withhold(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace histories and prompts by their lengths, and the credentials of every URL by ***."""
    for name, value in event.items():
        if name in _WITHHELD and isinstance(value, Sized):
            event[name] = f"{len(value)} withheld"
        elif isinstance(value, str):
            event[name] = _CREDENTIALS.sub("***@", value)
    return event
