"""Every command line in docs/cli.md is one that `fencepost` understands."""

from __future__ import annotations

import re
import shlex

import pytest

from generators.reference import ROOT
from unit.cli.world import World, dead_letter

GROUPS = ("dead-letters", "fence", "snapshots")
LINES = re.findall(r"^\$ (fencepost .*)$", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("line", LINES)
def test_a_documented_command_line_is_understood(line: str) -> None:
    world = World.usual()
    world.any_name = True
    world.spec_changes = {"source": {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders", "flights"]}}}
    world.keep(dead_letter("flights", 12017))
    ended = world.run(*shlex.split(line)[1:])
    assert ended.exit_code == 0, ended.output


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    told = World.usual().run("--help").stdout + "".join(World.usual().run(group, "--help").stdout for group in GROUPS)
    commands = re.findall(r"^  ([a-z][a-z-]*)  ", told, re.MULTILINE)
    assert {"offsets", "show", "history", "verify"} <= set(commands)
    for command in commands:
        assert re.search(rf"fencepost ([a-z-]+ )?{command}\b", text), command
