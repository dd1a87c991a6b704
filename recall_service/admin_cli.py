"""recall-service admin: what is live on one server, and changes of it, asked of its port for operators."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from item_catalog.errors import CatalogError
from recall_service.access_flags import TlsCa, TlsCertificate, TlsKey, TokenFile, read_access
from recall_service.rpc.connection_options import MAX_ADMIN_REQUEST_BYTES
from recall_service.terminal import one_line_errors, printable

if TYPE_CHECKING:  # gRPC comes in once there is something to ask
    from recall_service.client.channel import Access
    from recall_service.stubs.recall.v1 import admin_pb2

admin_app = typer.Typer(help="Look after a running server, on its port for operators.", no_args_is_help=True)

_Bundle = Annotated[str, typer.Option(help="Name of the bundle; empty is the default one.")]
_Version = Annotated[str, typer.Argument(help="A version in the store of the bundle's catalogue.")]
_JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


@dataclass(frozen=True, slots=True)
class _Server:
    """Whom the commands ask, and how."""

    target: str
    timeout: float
    access: "Access"

    def ask(self, method: str, request: Any) -> Any:
        """The answer, a message. Without one, a line on stderr and exit code 1."""
        import grpc

        from recall_service.client.channel import open_channel
        from recall_service.client.errors import RecallClientError
        from recall_service.client.policy import BALANCING, channel_options
        from recall_service.stubs.recall.v1.admin_pb2_grpc import AdminServiceStub

        options = channel_options(BALANCING, max_request_bytes=MAX_ADMIN_REQUEST_BYTES)
        try:
            with open_channel(self.target, self.access, options) as channel:
                stub = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
                return getattr(stub, method)(request, timeout=self.timeout, metadata=self.access.metadata())
        except grpc.RpcError as error:
            problem: Exception = RecallClientError.of_call(error)
        except ValueError as error:
            problem = error
        typer.echo(printable(f"{self.target}: {problem}"), err=True)
        raise typer.Exit(1)


@admin_app.callback()
def admin(
    context: typer.Context,
    target: Annotated[str, typer.Option(help="The port for operators, as host:port.")] = "127.0.0.1:50052",
    timeout: Annotated[float, typer.Option(help="Seconds to wait; what has begun is carried through.")] = 600.0,
    tls_ca: TlsCa = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
) -> None:
    """Look after a running server, on its port for operators."""
    with one_line_errors():
        context.obj = _Server(target, timeout, read_access(tls_ca, tls_certificate, tls_key, token_file))


@admin_app.command("list")
def list_bundles(context: typer.Context, as_json: _JsonFlag = False) -> None:
    """Show what is live, and how busy its engines are."""
    from recall_service.stubs.recall.v1 import admin_pb2

    listed = context.obj.ask("ListBundles", admin_pb2.ListBundlesRequest())
    rows = [
        {
            "bundle": state.info.name,
            "version": state.info.version,
            "catalog_version": state.info.catalog_version,
            "items": state.info.catalog_items,
            "attributes": [attribute.name for attribute in state.info.attributes],
            "waiting": state.waiting_requests,
            "running": state.running_requests,
            "stuck": state.stuck,
        }
        for state in listed.bundles
    ]
    if as_json:
        typer.echo(json.dumps({"serving": listed.serving, "bundles": rows}))
        return
    table = Table(title="serving" if listed.serving else "not serving", title_justify="left")
    for heading in rows[0]:
        table.add_column(heading.replace("_", " "))
    for row in rows:
        table.add_row(*map(_shown, row.values()))
    Console().print(table)


@admin_app.command()
def load(
    context: typer.Context,
    version: Annotated[str, typer.Argument(help="A version in the store; empty is its current one.")] = "",
    bundle: _Bundle = "",
    as_json: _JsonFlag = False,
) -> None:
    """Read, check and warm a catalogue version, and keep it ready. Nothing goes live."""
    from recall_service.stubs.recall.v1 import admin_pb2

    request = admin_pb2.LoadCatalogRequest(bundle=bundle, version=version)
    _show(_catalog(context.obj.ask("LoadCatalog", request).catalog), "ready", as_json)


@admin_app.command()
def activate(context: typer.Context, version: _Version, bundle: _Bundle = "", as_json: _JsonFlag = False) -> None:
    """Make a catalogue version live, here and in the store, which other replicas follow."""
    from recall_service.stubs.recall.v1 import admin_pb2

    request = admin_pb2.ActivateCatalogRequest(bundle=bundle, version=version)
    swap = context.obj.ask("ActivateCatalog", request)
    _show(_catalog(swap.catalog) | {"previous_version": swap.previous_version}, "live", as_json)


@admin_app.command()
def rollback(context: typer.Context, bundle: _Bundle = "", as_json: _JsonFlag = False) -> None:
    """Make the catalogue version live again that was current before."""
    from recall_service.stubs.recall.v1 import admin_pb2

    swap = context.obj.ask("RollbackCatalog", admin_pb2.RollbackCatalogRequest(bundle=bundle))
    _show(_catalog(swap.catalog) | {"previous_version": swap.previous_version}, "live", as_json)


@admin_app.command()
def apply(
    context: typer.Context,
    updates: Annotated[Path, typer.Argument(metavar="UPDATES.jsonl", help="One update a line, as JSON.")],
    bundle: _Bundle = "",
    as_json: _JsonFlag = False,
) -> None:
    """Change items of the live catalogue, 10,000 lines at a time, each of which is durable and live once it is done."""
    from item_catalog.updating.update_lines import read_updates
    from recall_service.update_messages import to_message

    document: dict[str, Any] = {}
    counts = dict.fromkeys(("added", "changed", "removed", "unknown_removals"), 0)
    with one_line_errors():
        for batch in read_updates(updates):
            done = context.obj.ask("ApplyItemUpdates", to_message(batch.updates, bundle))
            document = _catalog(done.catalog)
            counts = {name: count + getattr(done, name) for name, count in counts.items()}
            typer.echo(f"lines 1 to {batch.last_line:,} are applied", err=True)
        if not document:
            raise CatalogError(f"{updates}: no updates; give at least one line")
    _show(document | counts, "live", as_json)


@admin_app.command("reload")
def reload_bundle(context: typer.Context, bundle: _Bundle = "", as_json: _JsonFlag = False) -> None:
    """Read a bundle's directory anew, model, prompt and catalogue, and make it live."""
    from recall_service.stubs.recall.v1 import admin_pb2

    swap = context.obj.ask("ReloadBundle", admin_pb2.ReloadBundleRequest(bundle=bundle))
    document = {
        "bundle": swap.info.name,
        "version": swap.info.version,
        "catalog_version": swap.info.catalog_version,
        "previous_version": swap.previous_version,
    }
    _show(document, "live", as_json)


@admin_app.command()
def drain(context: typer.Context, as_json: _JsonFlag = False) -> None:
    """Take the server out of service and end it, losing no call."""
    from recall_service.stubs.recall.v1 import admin_pb2

    answer = context.obj.ask("Drain", admin_pb2.DrainRequest())
    _show({"at_most_seconds": answer.at_most_seconds}, "draining", as_json)


def _catalog(state: "admin_pb2.CatalogState") -> dict[str, Any]:
    return {"bundle": state.bundle, "version": state.version, "items": state.items, "sids": state.sids}


def _show(document: Mapping[str, Any], title: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(document))
        return
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in document.items():
        table.add_row(name.replace("_", " "), _shown(value))
    Console().print(table)


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else f"{value:,}" if type(value) is int else str(value)
