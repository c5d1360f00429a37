"""Every command line in docs/cli.md, and every command that a message names, is one that `fencepost` understands."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from fencepost.batch import Watermarks
from fencepost.contract import ExitCode, Reason, Verdict
from fencepost.local.record_lines import FileRecord
from fencepost.state.progress import Committed
from fencepost.state.questions import Answer, Rows
from fencepost.state.tree import StoredFile
from fencepost_cli.commands.checkpoint.certify import PASSWORD
from fencepost_cli.ports import Related
from fencepost_cli.projects.project import Choices, Ci, project_files, write_project
from fencepost_cli.retention import ANNOTATION
from generators.reference import ROOT
from present import present
from unit.cli import test_advise
from unit.cli.test_logs import pod
from unit.cli.test_trial import completed, trial
from unit.cli.world import World, dead_letter

GROUPS = ("dead-letters", "fence", "retention", "snapshots", "state", "trial")
OF_THE_IMAGE = {"run", "purge", "trial"}
"""Commands of the job image's own `fencepost`."""
NAMED = {
    found
    for source in ("operator/src", "job-image/src", "cli/src")
    for module in (ROOT / source).rglob("*.py")
    for found in re.findall(r"`fencepost ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", module.read_text())
} - OF_THE_IMAGE
LINES = re.findall(r"^\$ (fencepost .*)$", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)


STOPPED = Verdict(exit_code=int(ExitCode.STOPPED), reason=Reason.STOPPED, message="stopped", remedy="")
PROJECT = Choices(
    name="orders", topic="orders", keyspace="shop", table="rows", image="i", is_stateful=False, ci=Ci.NONE
)


@pytest.mark.parametrize("line", LINES)
def test_a_documented_command_line_is_understood(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PASSWORD, "secret")
    Path("offsets.json").write_text('{"flights/0": 12000}')
    write_project(Path(), project_files(PROJECT))
    world = World.usual()
    world.inspected = {"versions": {"scala": "2.13"}, "pythons": ["3.11"], "packages": [], "modules": {}, "native": []}
    world.inspected |= {"unreadable": [], "broken": [], "jars": [], "functions": {"orders": ["transform"]}}
    world.tables["shop.rows"] = world.tables["shop.orders"]
    world.any_name = True
    world.spec_changes = {"source": {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders", "flights"]}}}
    world.keep(dead_letter("flights", 12017))
    if line.startswith("fencepost dead-letters skip"):
        row, ids = present(world.row), {"flights": "id"}
        offsets, ends = {**row.offsets, "flights/0": 12000}, {**row.log_ends, "flights/0": 12100}
        world.row = replace(row, offsets=offsets, log_ends=ends, topic_ids={**row.topic_ids, **ids})
        world.leader_epochs["flights/0@12017"] = 6
    world.retention["flights"] = {}
    world.related_objects[Related.PODS] = [pod(1, "orders-run-1-x")]
    world.annotations[ANNOTATION] = '{"flights": {"retention.ms": {"before": 1, "own": false, "set": []}}}'
    if line.startswith("fencepost state"):
        hold_state(world)
    if line.startswith("fencepost failover"):
        world.body["spec"]["failover"] = {"takeOverAfter": "30s"}
        world.body["status"] = {"epoch": 2, "observedGeneration": 9}
    if line.startswith("fencepost sample"):
        hold_records(world)
    if line.startswith("fencepost autoscale"):
        world.records = test_advise.scene(test_advise.rows(), every=timedelta(seconds=10)).records
    world.trials = [trial(completed())]
    world.local = lambda _request, _show: STOPPED
    ended = world.run(*shlex.split(line)[1:])
    assert ended.exit_code == 0, ended.output


def hold_state(world: World) -> None:
    """Make the pipeline stateful, with a commit and an answer to each question."""
    tree = StoredFile(UUID(int=1), 1)
    held = Committed(batch=1, metadata="{}", offset_logs={1: ""}, commit_log="", tree=tree).pack()
    world.spec_changes["job"] = {"image": "image", "entrypoint": "job:stream", "mode": "Stateful"}
    world.row = replace(present(world.row), checkpoint=held)
    world.snapshot_rows = [replace(one, checkpoint=held) for one in world.snapshot_rows]
    world.answer = Answer(operators=(), rows=Rows(operator=0, store="default", exported=0))


def hold_records(world: World) -> None:
    """Let Kafka have records with what the masks name, and no file of them be there."""
    Path("orders.jsonl").unlink(missing_ok=True)
    world.log = Watermarks(
        {"orders/0": 0, "flights/0": 12_000}, {"orders/0": 15, "flights/0": 12_100}, {"flights": "id"}
    )
    value = b'{"customer": {"email": "ann@shop.example"}}'
    world.kafka_records = [
        FileRecord(topic="flights", offset=12_017, key=b"k", value=value, headers=(("user", b"ann"),))
    ]


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
