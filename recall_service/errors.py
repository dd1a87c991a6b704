"""Every error this project raises on purpose, drawn as one tree.

RecallError
├── InvalidRequest        the caller asked for something malformed: all violations at once
├── HistoryEmpty          nothing of the history is known, and the bundle does not serve an empty prompt
├── Unauthenticated       no token that is known here
├── PermissionDenied      the token is known, and has no right to this
├── Overloaded            the queue or a limit is full, or the deadline cannot be met; come back later
├── DeadlineExpired       the deadline passed at a named stage
├── RequestCancelled      the caller went away
├── NotReady              not warmed up yet, draining, or the engine is stuck or fails every step
├── UnknownVersion        no such bundle is live, or its store has no such catalogue version
├── ChangeRefused         what is live cannot be changed as an operator asks; it stays as it was
├── EngineFailure         a step of the engine failed; the request is not at fault
│   └── ModelOutputError  the model gave NaN or +inf for this request
└── SetupError            something on disk or in the settings is not fit to serve
    ├── SettingsError
    ├── BundleError
    ├── CheckpointError
    ├── ReplayError
    └── RequestLogError

`item_catalog.errors.CatalogError` stands beside the tree, for that package knows nothing of ours.
`rpc.status` holds the one table from these to gRPC status. This module imports nothing but the standard library, so
that every room, the engine included, may use it.
"""

from typing import ClassVar, NamedTuple


class RecallError(Exception):
    """Root of the tree. `reason` is the stable, machine-readable name that goes on the wire."""

    reason: ClassVar[str] = "INTERNAL"

    @property
    def metadata(self) -> dict[str, str]:
        """Short facts for `google.rpc.ErrorInfo`; never a secret."""
        return {}


class Violation(NamedTuple):
    """One thing wrong with one field: `field` is the path in the request, `description` says value and remedy."""

    field: str
    description: str


class InvalidRequest(RecallError):
    """The request is malformed or out of range; carries every violation, not only the first."""

    reason = "INVALID_REQUEST"

    def __init__(self, violations: list[Violation]) -> None:
        self.violations = violations
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in violations))


class HistoryEmpty(RecallError):
    """No item of the history is in the catalogue, and the bundle refuses an empty history."""

    reason = "HISTORY_EMPTY"


class Unauthenticated(RecallError):
    """The call carries no token that is known here. Never says what was wrong with it."""

    reason = "UNAUTHENTICATED"


class PermissionDenied(RecallError):
    """The caller is known, and its rights do not reach this method."""

    reason = "PERMISSION_DENIED"


class Overloaded(RecallError):
    """No room now. `retry_after_seconds` is the server's advice.

    limit: what was full: queue_full, deadline, client_limit, scene_limit or memory.
    """

    reason = "OVERLOADED"

    def __init__(self, message: str, *, retry_after_seconds: float, limit: str = "queue_full") -> None:
        self.retry_after_seconds = retry_after_seconds
        self.limit = limit
        super().__init__(message)

    @property
    def metadata(self) -> dict[str, str]:
        """What was full."""
        return {"limit": self.limit}


class DeadlineExpired(RecallError):
    """The deadline passed. `stage` says where: queue, prefill or decode."""

    reason = "DEADLINE_EXPIRED"

    def __init__(self, stage: str) -> None:
        self.stage = stage
        super().__init__(f"the deadline passed during {stage}")

    @property
    def metadata(self) -> dict[str, str]:
        """Where the time ran out."""
        return {"stage": self.stage}


class RequestCancelled(RecallError):
    """The caller cancelled; the work was stopped and its slots returned."""

    reason = "CANCELLED"


class NotReady(RecallError):
    """The server is warming up or draining, or the bundle's engine is stuck in a step, fails every step or stops."""

    reason = "NOT_READY"


class UnknownVersion(RecallError):
    """The named bundle is not served here, or its catalogue's store has no version of that name."""

    reason = "UNKNOWN_VERSION"


class ChangeRefused(RecallError):
    """An operator's change of what is live cannot be made: says why, and the remedy. What was live stays live."""

    reason = "CHANGE_REFUSED"


class EngineFailure(RecallError):
    """A step of the engine failed; every request in it gets this, and the engine goes on."""

    reason = "ENGINE_FAILURE"


class ModelOutputError(EngineFailure):
    """The model's logits for this request hold NaN or +inf; other requests in the step are untouched."""

    reason = "MODEL_OUTPUT"


class SetupError(RecallError):
    """Refused at start: the message names file or field, value and remedy."""

    reason = "SETUP"


class SettingsError(SetupError):
    """A setting is missing, malformed or contradicts another."""


class BundleError(SetupError):
    """bundle.toml, or the agreement between its model, catalogue and prompt."""


class CheckpointError(SetupError):
    """A Hugging Face checkpoint that this engine cannot or must not load."""


class ReplayError(SetupError):
    """A replay's source, target or output is not fit for it."""


class RequestLogError(SetupError):
    """A request log that cannot be read on: the message names file, byte offset, what is wrong and the remedy."""
