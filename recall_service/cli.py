"""recall-service: serve bundles, query a server, look after it, check a bundle, show the settings, run the demo.

People read tables on stdout; `--json` gives machines one JSON document as its last line. Progress and logs go to
stderr. What is not fit to serve is one line on stderr and exit code 2; a call that got no answer, exit code 1.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from recall_service import __version__
from recall_service.access_flags import TlsCa, TlsCertificate, TlsKey, TokenFile, read_access
from recall_service.admin_cli import admin_app
from recall_service.ending import end_now, ends_when_told
from recall_service.replay.cli import replay
from recall_service.request_log.cli import log_app
from recall_service.terminal import one_line_errors
from recall_service.token_cli import token

if TYPE_CHECKING:  # gRPC comes in once there is something to ask
    from recall_service.client import RecallClient
    from recall_service.client.predicates import Predicate

app = typer.Typer(
    help="Generative-recommendation recall: exact beam search over a catalogue's semantic IDs, over gRPC.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bundle_app = typer.Typer(help="Look at bundles.", no_args_is_help=True)
app.add_typer(bundle_app, name="bundle")
app.add_typer(admin_app, name="admin")
app.add_typer(log_app, name="log")
app.command()(replay)
app.command()(token)

_JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
_ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file of settings.")]
_Bundles = Annotated[list[Path] | None, typer.Option("--bundle", help="Bundle directory; may be repeated.")]
_Priority = Literal["low", "normal", "high"]
_Where = Annotated[
    list[str] | None,
    typer.Option(metavar="CONDITION", help="What items satisfy: category=a,b or category!=c or price<=30; repeatable."),
]
_Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting.")]


@app.command()
def serve(
    bundle: _Bundles = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Port of /metrics; 0 takes a free one.")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Port for operators; 0 takes a free one.")] = None,
    config: _ConfigFile = None,
    settings: _Set = None,
) -> None:
    """Serve bundles until SIGTERM. Prints one JSON line on stdout once calls are answered."""
    flags = {"bundles": bundle, "host": host, "port": port, "metrics_port": metrics_port, "admin_port": admin_port}
    with ends_when_told(), one_line_errors():
        from recall_service.observability.logging import configure_logging

        resolved = _load_settings(config, flags | _pairs(settings))
        configure_logging(resolved.log_level, resolved.log_format)

        from recall_service import app as application  # takes seconds: a signal meanwhile is told of in the log
        from recall_service.event_loop import run

        run(application.serve(resolved, lambda serving: _print_json(asdict(serving), flush=True)))
        end_now()


@app.command()
def query(
    history: Annotated[str, typer.Option(help="Item ids, oldest first, with commas.")],
    target: Annotated[str, typer.Option(help="Server to ask, as host:port.")] = "127.0.0.1:50051",
    num_items: Annotated[int, typer.Option(help="How many items; 0 is the bundle's default.")] = 0,
    beam_width: Annotated[int, typer.Option(help="Beam width; 0 is the bundle's default.")] = 0,
    proven: Annotated[bool, typer.Option("--proven", help="Search on until the items are proven.")] = False,
    where: _Where = None,
    exclude: Annotated[list[str] | None, typer.Option(metavar="ID", help="Leave out an item; may be repeated.")] = None,
    exclude_history: Annotated[bool, typer.Option("--exclude-history", help="Leave out the history.")] = False,
    bundle: Annotated[str, typer.Option(help="Bundle to ask; empty is the default one.")] = "",
    timeout: Annotated[float, typer.Option(help="Deadline in seconds.")] = 10.0,
    priority: Annotated[_Priority, typer.Option(help="Who waits for whom when the service is busy.")] = "normal",
    tls_ca: TlsCa = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
    steps: Annotated[bool, typer.Option("--steps", help="Also show log-probability and rank of every step.")] = False,
    as_json: _JsonFlag = False,
) -> None:
    """Ask a running server which items come next."""
    from recall_service.client import RecallClient, RecallClientError

    with one_line_errors():
        access = read_access(tls_ca, tls_certificate, tls_key, token_file)
    try:
        with RecallClient(target, timeout=timeout, tls=access.tls, token=access.token) as client:
            result = client.recall(
                history=[item for item in history.split(",") if item],
                num_items=num_items,
                beam_width=beam_width,
                where=_read_where(client, bundle, where or []),
                exclude_item_ids=exclude or [],
                exclude_history=exclude_history,
                search_mode="proven" if proven else "beam",
                bundle=bundle,
                include_steps=steps,
                priority=priority,
            )
    except (RecallClientError, ValueError) as error:
        typer.echo(f"{target}: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        _print_json(asdict(result))
        return
    table = Table(title=f"{len(result.items)} items, {result.proven_count} proven", title_justify="left")
    for heading in ("rank", "item", "score", "SID", *(("step log-probs", "step ranks") if steps else ())):
        table.add_column(heading, justify="left" if heading == "item" else "right")
    for rank, item in enumerate(result.items, start=1):
        shown = [str(rank), item.item_id, f"{item.score:.4f}", " ".join(map(str, item.sid))]
        if steps:
            shown += [" ".join(f"{p:.2f}" for p in item.step_log_probs), " ".join(map(str, item.step_ranks))]
        table.add_row(*shown)
    Console().print(table)
    typer.echo(
        f"{result.bundle} {result.bundle_version}, catalogue {result.catalog_version}, scores over "
        f"{result.score_space}, W = {result.beam_width}, from {result.served_from} in "
        f"{result.total_seconds * 1000:.2f} ms{f', short: {result.short_reason}' if result.short_reason else ''}"
    )


@bundle_app.command()
def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory that holds bundle.toml.")],
    as_json: _JsonFlag = False,
) -> None:
    """Load a bundle as the server would, and say what it is."""
    from recall_service.serving.bundles.bundle import check_setup

    with one_line_errors():
        bundle = check_setup(directory)
    config, layout = bundle.model.config, bundle.catalog.layout
    facts = {
        "name": bundle.name,
        "version": bundle.version,
        "model": f"{config.family}, {config.num_layers} layers, hidden {config.hidden_size}, {bundle.model.dtype}",
        "vocabulary": config.vocab_size,
        "catalog_version": bundle.catalog.version,
        "items": bundle.catalog.num_items,
        "sids": bundle.catalog.trie.num_leaves,
        "codebook_sizes": list(layout.codebook_sizes),
        "score_space": bundle.file.search.score_space.value,
        "longest_history_prompt": bundle.template.length(bundle.file.prompt.max_history),
        "max_prompt_tokens": bundle.max_prompt_tokens,
    }
    if as_json:
        _print_json(facts)
        return
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', ' '):>24}  {value}")
    typer.echo(f"{directory}: sound")


@app.command()
def config(config: _ConfigFile = None, settings: _Set = None) -> None:
    """Print every setting as it resolves, secrets masked, as one JSON document."""
    with one_line_errors():
        _print_json(_load_settings(config, _pairs(settings)).masked())


@app.command()
def demo(
    directory: Annotated[Path, typer.Option(help="Where the demo's model and bundle are kept.")] = Path(".demo"),
    stay: Annotated[bool, typer.Option("--stay", help="Keep the server up instead of showing and leaving.")] = False,
) -> None:
    """Make a small shop, train a model on it, serve it, and ask it; the second run reuses what the first made."""
    from recall_service.demo.run import run_demo, stay_up

    with one_line_errors():
        if stay:
            stay_up(directory)
        else:
            _print_json(run_demo(directory))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _read_where(client: "RecallClient", bundle: str, conditions: list[str]) -> "list[Predicate]":
    """Conditions as predicates; whether 30 is a number or a text, the server's catalogue knows."""
    if not conditions:
        return []
    from recall_service.where_flags import read_where

    served = client.serving_info().bundles
    asked = [info for info in served if info.name == bundle] if bundle else served[:1]
    return read_where(conditions, {attribute.name: attribute.type for info in asked for attribute in info.attributes})


def _load_settings(config: Path | None, flags: dict[str, Any]) -> Any:
    from recall_service.config import load_settings

    return load_settings(config, flags)


def _pairs(settings: list[str] | None) -> dict[str, str]:
    pairs = {}
    for setting in settings or ():
        name, separator, value = setting.partition("=")
        if not separator:
            raise typer.BadParameter(f"{setting!r} has no '='; give NAME=VALUE", param_hint="--set")
        pairs[name] = value
    return pairs


def _print_json(document: Any, *, flush: bool = False) -> None:
    print(json.dumps(document), flush=flush)  # noqa: T201
