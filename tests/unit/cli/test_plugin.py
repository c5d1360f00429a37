"""`kubectl fencepost` is `fencepost`: the same entry point under the name that kubectl looks for."""

from __future__ import annotations

import sys
import tomllib

import pytest

from fencepost_cli.__main__ import PLUGIN, main
from generators.reference import ROOT


def test_both_programs_are_the_same() -> None:
    scripts = tomllib.loads((ROOT / "cli/pyproject.toml").read_text())["project"]["scripts"]
    assert scripts[PLUGIN] == scripts["fencepost"] == "fencepost_cli.__main__:main"


@pytest.mark.parametrize(
    ("program", "name"), [(f"/usr/bin/{PLUGIN}", "kubectl fencepost"), ("x/fencepost", "fencepost")]
)
def test_the_help_names_the_program_as_it_was_started(
    program: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "explain", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert f"Usage: {name} explain" in capsys.readouterr().out
