"""Where the server reports the calls it handled: who counts them, who writes about them, who draws them.

Every method is cheap and never raises; `method` is Recall, BatchRecall, ...; `code_name` is OK, INVALID_ARGUMENT, ...
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from recall_service.rpc.call import Facts

Metadata = Iterable[tuple[str, str | bytes]]


class RpcObserver(Protocol):
    """Counts every call to RecallService, in the words of gRPC: what the `grpc_server_*` metrics need.

    And knows whether the server wants such calls: what balancers learn from its health.
    """

    def rpc_started(self, method: str) -> None:
        """A call arrived."""

    def rpc_handled(self, method: str, code_name: str, seconds: float) -> None:
        """A call ended with a status."""

    def ready(self, *, is_ready: bool) -> None:
        """From now on the server's health says SERVING, or NOT_SERVING."""


class CallLog(Protocol):
    """Writes about some calls."""

    def ended(self, method: str, code_name: str, seconds: float, facts: Callable[[], Facts]) -> None:
        """A call ended with a status; `facts` looks up what is known of it."""


class CallTracer(Protocol):
    """Draws some calls. Between `start` and `end` the call is what its task, and those it starts, are busy with."""

    def start(self, method: str, metadata: Metadata) -> Any:
        """A call arrived; whatever is returned is handed to `end`, in the same task."""

    def end(self, started: Any, code_name: str, facts: Callable[[], Facts]) -> None:
        """The call ended with a status; `facts` looks up what is known of it."""

    def entry(self, position: int) -> AbstractContextManager[object]:
        """While it lasts, the task is busy with one entry of its call's batch."""


class NullRpcObserver:
    """Listens to nothing; the default."""

    def rpc_started(self, method: str) -> None:
        """Do nothing."""

    def rpc_handled(self, method: str, code_name: str, seconds: float) -> None:
        """Do nothing."""

    def ready(self, *, is_ready: bool) -> None:
        """Do nothing."""


class NullCallLog:
    """Writes nothing; the default."""

    def ended(self, method: str, code_name: str, seconds: float, facts: Callable[[], Facts]) -> None:
        """Do nothing."""


class NullCallTracer:
    """Draws nothing; the default."""

    def start(self, method: str, metadata: Metadata) -> Any:
        """Do nothing."""

    def end(self, started: Any, code_name: str, facts: Callable[[], Facts]) -> None:
        """Do nothing."""

    def entry(self, position: int) -> AbstractContextManager[object]:  # noqa: ARG002
        """Do nothing."""
        return nullcontext()
