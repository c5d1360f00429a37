"""Every command line in docs/cli.md is one that `fencepost` understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fencepost_cli.retention import ANNOTATION
from generators.reference import ROOT
from unit.cli.world import World, dead_letter

GROUPS = ("dead-letters", "fence", "retention", "snapshots")
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
    told = World.usual().run("--help").stdout + "".join(World.usual().run(group, "--help").stdout for group in GROUPS)
    commands = re.findall(r"^  ([a-z][a-z-]*)  ", told, re.MULTILINE)
    assert {"offsets", "show", "history", "verify"} <= set(commands)
    for command in commands:
        assert re.search(rf"fencepost ([a-z-]+ )?{command}\b", text), command
