"""A command imports what it needs, and the help of all commands needs none of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from fencepost_cli.app import ADAPTERS, COMMANDS, adapter, app, loaded
from fencepost_cli.ports import Ports

CLIENTS = {
    "aiohttp",
    "cassandra",
    "confluent_kafka",
    "kubernetes",
    "numpy",
    "psycopg",
    "pyarrow",
    "pyspark",
    "starlette",
}
LIBRARIES = CLIENTS | {"jinja2", "msgspec", "pydantic", "rich", "yaml"}
SHOW = """
import sys
from fencepost_cli.__main__ import main
sys.argv = ["fencepost", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, sep="\\n", file=sys.stderr)
"""


def imported(*words: str) -> set[str]:
    """Return the top-level modules of a fresh interpreter that has run the command."""
    ended = subprocess.run([sys.executable, "-c", SHOW, *words], capture_output=True, text=True, check=True)
    assert "Usage: " in ended.stdout
    return {name.partition(".")[0] for name in ended.stderr.splitlines()}


def test_the_help_of_all_commands_imports_no_library_of_a_command() -> None:
    assert not imported("--help") & LIBRARIES


@pytest.mark.parametrize("command", ["explain", "fence", "init"])
def test_a_command_connects_before_it_imports_a_client(command: str) -> None:
    assert not imported(command, "--help") & CLIENTS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_help_is_the_commands_own(name: str) -> None:
    assert COMMANDS[name].summary == loaded(name).get_short_help_str(1_000)


def test_each_port_has_an_adapter_that_exists() -> None:
    assert [*ADAPTERS] == [field.name for field in fields(Ports)]
    called = list[str]()
    for place in ADAPTERS.values():
        module, _, attribute = place.partition(":")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"fencepost_cli.stores.{module}.{attribute}", called.append)
            adapter(place)(place)
    assert called == [*ADAPTERS.values()]


def test_a_mistyped_command_is_corrected() -> None:
    assert "Did you mean 'fence'?" in CliRunner().invoke(app, ["fense"]).output
