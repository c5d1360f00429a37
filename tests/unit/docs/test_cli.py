"""Every command line in docs/cli.md, and every command that a message names, is one that `fencepost` understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fencepost_cli.retention import ANNOTATION
from generators.reference import ROOT
from unit.cli.world import World, dead_letter

GROUPS = ("dead-letters", "fence", "retention", "snapshots")
OF_THE_IMAGE = {"run", "purge"}
"""Commands of the job image's own `fencepost`."""
NAMED = {
    found
    for source in ("operator/src", "job-image/src", "cli/src")
    for module in (ROOT / source).rglob("*.py")
    for found in re.findall(r"`fencepost ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", module.read_text())
} - OF_THE_IMAGE
LINES = re.findall(r"^\$ (fencepost .*)$", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("line", LINES)
def test_a_documented_command_line_is_understood(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("offsets.json").write_text('{"flights/0": 12000}')
    world = World.usual()
    world.any_name = True
    world.spec_changes = {"source": {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders", "flights"]}}}
    world.keep(dead_letter("flights", 12017))
    world.retention["flights"] = {}
    world.annotations[ANNOTATION] = '{"flights": {"retention.ms": {"before": 1, "own": false, "set": []}}}'
    ended = world.run(*shlex.split(line)[1:])
    assert ended.exit_code == 0, ended.output


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    listed = World.usual().run("--help").stdout + "".join(World.usual().run(group, "--help").stdout for group in GROUPS)
    commands = re.findall(r"^  ([a-z][a-z-]*)  ", listed, re.MULTILINE)
    assert {"offsets", "show", "history", "verify"} <= set(commands)
    for command in commands:
        assert re.search(rf"fencepost ([a-z-]+ )?{command}\b", text), command


@pytest.mark.parametrize("command", sorted(NAMED))
def test_a_command_that_a_message_names_exists(command: str) -> None:
    ended = World.usual().run(*command.split(), "--help")
    assert ended.exit_code == 0, ended.output
