"""recall-service token."""

import json

import pytest
from typer.testing import CliRunner

from recall_service.cli import app
from recall_service.config import Settings
from recall_service.tokens import digest_of

RUN = CliRunner()


def test_the_entry_is_what_the_setting_takes_and_belongs_to_the_token() -> None:
    result = RUN.invoke(app, ["token", "--name", "ranker", "--rights", "recall+admin", "--json"])
    made = json.loads(result.stdout)
    assert made["entry"] == f"ranker:recall+admin:{digest_of(made['token'])}"
    assert Settings(tokens=(made["entry"],)).tokens == (made["entry"],)


def test_people_read_two_lines() -> None:
    result = RUN.invoke(app, ["token", "--name", "ranker"])
    token, entry = (line.rpartition(" ")[2] for line in result.stdout.splitlines())
    assert entry == f"ranker:recall:{digest_of(token)}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "a b"], "error: token: the name is not 1 to 64 letters"),
        (["--name", "a:b"], "error: token: 4 parts between colons"),
        (["--name", "ranker", "--rights", "root"], "error: token: the rights of ranker are not recall, admin"),
    ],
    ids=["space", "colon", "rights"],
)
def test_what_the_setting_would_not_take_is_not_made(arguments: list[str], message: str) -> None:
    result = RUN.invoke(app, ["token", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith(message)
    assert result.stdout == ""
