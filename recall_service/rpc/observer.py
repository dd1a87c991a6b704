"""Where the server reports the calls it handled, in the words of gRPC: what the `grpc_server_*` metrics need."""

from typing import Protocol


class RpcObserver(Protocol):
    """Told of every call to RecallService. Calls are cheap and never raise; `method` is Recall, BatchRecall, ..."""

    def rpc_started(self, method: str) -> None:
        """A call arrived."""

    def rpc_handled(self, method: str, code_name: str, seconds: float) -> None:
        """A call ended with a status: `code_name` is OK, INVALID_ARGUMENT, ..."""


class NullRpcObserver:
    """Listens to nothing; the default."""

    def rpc_started(self, method: str) -> None:
        """Do nothing."""

    def rpc_handled(self, method: str, code_name: str, seconds: float) -> None:
        """Do nothing."""
