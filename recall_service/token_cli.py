"""recall-service token: a fresh token for a caller, and the entry that lets the server know it."""

import json
from typing import Annotated

import typer

from recall_service.errors import SettingsError
from recall_service.setting_values import token_problem
from recall_service.terminal import one_line_errors
from recall_service.tokens import make_token


def token(
    name: Annotated[str, typer.Option(help="Who will carry it: a service, not a person.")],
    rights: Annotated[str, typer.Option(help="recall, admin or recall+admin.")] = "recall",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Make a token. It is shown once and kept nowhere; the server's setting `tokens` holds only its digest."""
    made = make_token(name, rights)
    with one_line_errors():
        if problem := token_problem(made.entry):
            raise SettingsError(f"token: {problem.partition(';')[0]}; correct --name or --rights")
    if as_json:
        typer.echo(json.dumps(made._asdict()))
        return
    typer.echo(f"token, for the caller:       {made.token}")
    typer.echo(f"entry, for RECALL_TOKENS:    {made.entry}")
