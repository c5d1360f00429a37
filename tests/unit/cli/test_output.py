"""What a command prints cannot steer the terminal, whoever wrote it."""

from __future__ import annotations

import pytest

from fencepost_cli.commands.output import print_error
from fencepost_cli.errors import CliError

HOSTILE = "evil\x1b]0;pwned\x07\x1b[2K\nerror: your token expired"


def test_an_error_that_quotes_a_broker_is_one_line_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error(CliError(f"Kafka names its brokers {HOSTILE}", remedy=f"look at {HOSTILE}"))
    printed = capsys.readouterr().err
    assert printed.count("\n") == 2
    assert all(line.isprintable() for line in printed.splitlines())
