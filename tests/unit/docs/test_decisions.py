"""The table of decisions and the runbooks of reasons say what the guidance says, and their commands are understood."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from generators.decisions import RUNBOOKS, generated, pages
from generators.reference import ROOT
from testbed.home import Home
from unit.cli.world import World
from unit.crds.schema import ROOT as SCHEMA
from unit.docs.runbook_commands import commands, filled

ANNOTATIONS: Final = re.compile(r'_ANNOTATION: Final = f"\{GROUP\}/([a-z-]+)"')
PLACEHOLDERS: Final = {
    "NAMESPACE": "shop",
    "NAME": "orders",
    "EPOCH": "7",
    "POD": "orders-spark-1-worker-0",
    "WORKER-POD": "orders-spark-1-worker-0",
    "JOB": "orders-purge-1",
    "NODE": "node-1",
    "TOPIC": "orders",
    "PARTITION": "0",
    "OFFSET": "13",
}
"""What a reader puts there; the others are arguments as they are."""


def test_the_pages_are_what_the_guidance_gives() -> None:
    wanted = pages()
    assert generated() == wanted.keys(), "run `make reference`"
    changed = [page.name for page, text in wanted.items() if page.read_text() != text]
    assert not changed, "run `make reference`"


def words(command: str) -> list[str]:
    """Return the words of a command with its placeholders filled, up to a pipe."""
    return shlex.split(
        filled(command, PLACEHOLDERS).split(" | ")[0].replace('"$(date +%s)"', "1").replace("$USER", "kim")
    )


COMMANDS: Final = commands(sorted(RUNBOOKS.glob("*.md")))


def test_the_runbooks_have_commands_of_these_programs_only() -> None:
    assert {words(command)[0] for command in COMMANDS} == {"kubectl", "fencepost", "helm", "promtool"}


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("kubectl ")])
def test_kubectl_understands_the_command(command: str) -> None:
    """Without a server each command gets as far as its connection: a wrong verb or flag is refused before."""
    line = [str(Home.of_user().bin / "kubectl"), "--server=http://127.0.0.1:9", *words(command)[1:]]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)
    assert "127.0.0.1:9" in ended.stderr, ended.stderr


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("fencepost ")])
def test_fencepost_understands_the_command(command: str) -> None:
    world, line = World.usual(), words(command)[1:]
    if line[0] == "failover":
        line.append("--yes")
        world.body["spec"]["failover"] = {"takeOverAfter": "30s"}
        world.body["status"] = {"epoch": 2, "observedGeneration": 9}
    ended = world.run(*line)
    assert ended.exit_code == 0, ended.output


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_names_exists(command: str) -> None:
    """Fields are the CRD's, annotations and labels those that the operator knows."""
    line = words(command)
    if "spl" in line:
        for path in re.findall(r"\{\.((?:status|spec)[.\w]*)\}", command):
            assert field(path.split(".")) is not None, path
        for patch in re.findall(r"-p '(\{.*\})'", command):
            for path in leaves(yaml.safe_load(patch)):
                assert field(path) is not None, path
    known = {*ANNOTATIONS.findall(VOCABULARY.read_text()), "pipeline", "namespace"}
    assert set(re.findall(r"streaming\.fencepost\.dev/([a-z-]*[a-z])", command)) <= known


VOCABULARY: Final = ROOT / "operator/src/fencepost_operator/api/vocabulary.py"


def field(path: list[str]) -> dict[str, Any] | None:
    """Return the schema at a path of fields, None where the CRD has none."""
    found: dict[str, Any] | None = SCHEMA
    for name in path:
        found = (found or {}).get("properties", {}).get(name)
    return found


def leaves(tree: object, before: tuple[str, ...] = ()) -> Iterator[list[str]]:
    if isinstance(tree, dict):
        for name, inside in tree.items():
            yield from leaves(inside, (*before, name))
    else:
        yield [*before]
