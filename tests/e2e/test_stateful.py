"""A stateful pipeline on the cluster, under late and unordered load: the example hourly-departures.

One pipeline for all faults, in order. After each of them every row of the table and the whole state are those of a
plain count of Kafka's log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Message, Producer

from e2e.hourly_counts import counted_from, of_state, of_table, plain_count
from e2e.hourly_lookups import check_lookups, looking_up
from e2e.reader import Reader
from e2e.recomputed import Compared
from e2e.stream import Applied, Stream, cassandra
from e2e.test_drain import exit_codes
from e2e.test_fencing import expect_fenced
from e2e.test_rewind import REWIND, command_in, ended, rewind, run_as
from fencepost.contract import ExitCode, Reason
from fencepost_operator.api import SNAPSHOT_ANNOTATION
from flights.disorder import HELD_BACK, unordered_flights
from generators.decisions import RUNBOOKS
from harness.faults.cluster_faults import Faults
from harness.faults.node_loss import NodeLoss
from harness.kubernetes.image_layers import add_files
from harness.kubernetes.kubectl import Kubectl
from harness.kubernetes.nodes import Nodes
from harness.monitoring.page_receivers import Hooks, hooks
from harness.operator_replicas import two_operators
from harness.pipelines import KIND, PIPELINE_LABEL, Place, code, ending
from harness.waiting import eventually, throughout
from present import present
from testbed.cluster import DATA_NODE, WORKERS
from unit.docs.runbook_commands import commands

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLE: Final = "hourly-departures"
TRACED: Final = Path(__file__).with_name("hourly_traced.py")
NAME: Final = "hourly"
CODE: Final = "hourly-traced-code"
GO: Final = "/go"
RUNBOOK: Final = RUNBOOKS / "PoisonRecord.md"
CODE_FOLDER: Final = "opt/fencepost/code"
"""Of the job image, where authors put their modules."""
EMPTIED_AT: Final = 2_800
"""Offset of each partition: no flight of the first batch from there on is weeks late."""
LOST: Final = next(node for node in WORKERS if node != DATA_NODE)
SILENCE: Final = 300.0
"""Seconds."""
BACKLOG: Final = HELD_BACK + 2_000
"""Flights before the first fault: two weeks, so that hours have left the state and flights come that are weeks late."""
KILLS: Final = pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.long)])
TRIAL: Final = {
    "strategy": "Trial",
    "trial": {
        "since": "10s",
        "promoteWhen": {"ignoreMissing": True},
        "limits": {"cpu": "500m", "memory": "2Gi"},
    },
}
BY_PARTITION: Final = {'groupBy("origin", f.window': 'groupBy("origin", "partition", f.window'}
"""Code whose state has one column more in its keys."""
TWICE: Final = {'f.count("*")': '(2 * f.count("*"))'}
"""Code that reads the same state and writes other rows."""
INDEX: Final = """
CREATE TABLE {0}_by_offset (
  pipeline text, topic text, partition int, bucket bigint, "offset" bigint, key blob, retention int,
  PRIMARY KEY ((pipeline, topic, partition, bucket), "offset", key))
"""


@pytest.fixture(scope="module")
def hub(faults: Faults) -> Iterator[Hooks]:
    """Return what commits of the pipeline ask whether they may continue."""
    with hooks(faults.nodes.host(DATA_NODE)) as found:
        yield found


@pytest.fixture(scope="module")
def hourly(applied: Applied, place: Place, kubectl: Kubectl, faults: Faults, hub: Hooks) -> Iterator[Compared]:
    """Return the pipeline, with two weeks of flights that come while it starts."""
    deploy(kubectl)
    with cassandra(place) as opened:
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        opened.execute(f"CREATE KEYSPACE IF NOT EXISTS {place.tables} WITH replication = {replication}")
        opened.execute(INDEX.format(f"{place.tables}.{NAME}"), timeout=60)
    stream = applied(
        NAME,
        example=EXAMPLE,
        feed=unordered_flights(),
        job={
            "codeFrom": {"configMapName": CODE},
            "entrypoint": f"{TRACED.stem}:stream",
            "args": [f"http://{faults.nodes.host(DATA_NODE)}:{hub.port}{GO}"],
            "terminationGracePeriodSeconds": 120,  # a zombie must outlive the order to end
        },
        source={"kafka": {"maxRecordsPerBatch": 2000}},
        sinks=[
            {
                "name": "hourly_departures",
                "cassandra": {"keyspace": place.tables, "table": NAME, "purgeIndex": {"retention": "168h"}},
            }
        ],
        restart={"maxBackoff": "2s", "stallTimeout": "20s"},
        onPoison={"failures": 1},
    )
    stream.load.burst(BACKLOG)
    stream.pipeline.wait_ready()
    yield Compared(stream, plain_count, of_table, of_state)
    stream.pipeline.delete()  # the tests that come after share the nodes


def deploy(kubectl: Kubectl, change: str = "") -> None:
    """Apply the ConfigMap of the pipeline's code; `change` makes it another one."""
    kubectl.apply({**code(EXAMPLE), "metadata": {"name": CODE}, "data": modules(change)})


def modules(change: str) -> dict[str, str]:
    """Return the files of the pipeline's code."""
    return {**code(EXAMPLE)["data"], TRACED.name: TRACED.read_text() + change}


@KILLS
def test_a_driver_killed_several_times_leaves_rows_and_state_of_a_plain_count(
    hourly: Compared, faults: Faults, kills: int
) -> None:
    first = present(hourly.stream.fence())
    hourly.kill_drivers(faults, kills)
    assert hourly.check().epoch == first.epoch + kills
    eventually("the status has the size of the state", lambda: shows_size(hourly.stream), seconds=60)


def shows_size(stream: Stream) -> bool:
    """Whether the status has the size of the state that the fence row has."""
    row, shown = present(stream.fence()), stream.pipeline.status().get("storedState", {})
    return bool(row.state_bytes) and shown.get("bytes") == row.state_bytes


@pytest.mark.long
def test_a_driver_frozen_between_output_and_commit_is_refused(
    hourly: Compared, faults: Faults, kubectl: Kubectl, hub: Hooks
) -> None:
    """SIGSTOP when rows and state of a batch are written; a successor repeats the batch; SIGCONT after its commits."""
    stream = hourly.stream
    with stream.load.flowing(), ExitStack() as kept:
        stream.commits_past(stream.fence())
        with ExitStack() as frozen:
            with held_back(hub):
                before, zombie = present(stream.fence()), stream.pipeline.driver()
                assert before.planned_log is not None
                stream.kills += 1
                kept.enter_context(faults.kept(zombie))
                frozen.enter_context(faults.frozen(zombie))
            row = hourly.successor(before)
        name = zombie["metadata"]["name"]
        found = eventually(f"{name} ends", lambda: ending(present(kubectl.get("pod", name))), seconds=90)
        expect_fenced(found, name)
        stream.commits_past(row)
    assert hourly.check().epoch == before.epoch + 1


@contextmanager
def held_back(hub: Hooks) -> Iterator[None]:
    """Hold back a commit for the block, which begins when rows and state of the batch are written."""
    asked = len(hub.got(GO))
    hub.statuses[GO] = 503
    try:
        eventually("a commit is held back", lambda: len(hub.got(GO)) > asked + 1, seconds=120, pause=0.1)
        yield
    finally:
        del hub.statuses[GO]


@pytest.mark.long
def test_new_code_resumes_with_the_state(hourly: Compared, kubectl: Kubectl) -> None:
    """No fault: the ConfigMap of the code changes under load."""
    stream = hourly.stream
    with stream.load.flowing():
        before = stream.commits_past(stream.fence())
        deploy(kubectl, "\n# another version\n")
        row = hourly.successor(before)
    assert hourly.check().epoch == row.epoch == before.epoch + 1


@pytest.mark.long
def test_an_upgrade_by_trial_refuses_code_that_does_not_fit_and_rolls_out_code_that_does(hourly: Compared) -> None:
    """Under load: code with another state, code that counts each flight twice, and then code that counts the same."""
    stream, pipeline = hourly.stream, hourly.stream.pipeline
    pipeline.patch({"upgrade": TRIAL})
    with stream.load.flowing():
        before, driver = stream.commits_past(stream.fence()), pipeline.driver()["metadata"]["uid"]
        assert "the code does not fit the stored state" in refused(stream, "by-partition", BY_PARTITION)
        assert "changed rows" in refused(stream, "twice", TWICE)
        row = stream.commits_past(stream.fence())
        assert (row.epoch, pipeline.driver()["metadata"]["uid"]) == (before.epoch, driver), "the old run was touched"
        change_code(stream, "same", {})
        row = hourly.successor(row, seconds=300)
    pipeline.wait_ready()
    assert "upgradeTrial" not in pipeline.status()
    assert hourly.check().epoch == row.epoch == before.epoch + 1
    pipeline.patch({"upgrade": None})


def refused(stream: Stream, name: str, change: Mapping[str, str]) -> str:
    """Change the code to some that may not run; return why, as the pipeline says it while it streams."""
    change_code(stream, name, change)
    stalled: str = stream.pipeline.wait_condition("Stalled", "True", reason="TrialNotPassed", seconds=300)["message"]
    assert stream.pipeline.condition("Streaming")["status"] == "True"
    stream.commits_past(stream.fence())
    return stalled


def change_code(stream: Stream, name: str, change: Mapping[str, str]) -> None:
    """Let the pipeline's code be its own with these texts in place of others, in a ConfigMap of this name."""
    files, name = modules(f"\n# {name}\n"), f"{CODE}-{name}"
    for text, other in change.items():
        assert files[TRACED.name].count(text) == 1
        files[TRACED.name] = files[TRACED.name].replace(text, other)
    stream.pipeline.kubectl.apply({**code(EXAMPLE), "metadata": {"name": name}, "data": files})
    stream.pipeline.patch({"job": {"codeFrom": {"configMapName": name}}})


@pytest.fixture(scope="module")
def newer_image(place: Place, nodes: Nodes) -> Iterator[str]:
    """Return an image on all nodes that has other code in it."""
    image = f"{place.second_image}-{NAME}"
    files = {f"{CODE_FOLDER}/{name}": text for name, text in modules("\n# of an image\n").items()}
    for node in WORKERS:
        add_files(nodes, node, place.environment.job_image, image, files)
    yield image
    for node in WORKERS:
        nodes.untag(node, image)


@pytest.mark.long
def test_a_new_image_with_the_code_resumes_with_the_state(hourly: Compared, newer_image: str) -> None:
    """No fault: the code of the next image is in the image, and no ConfigMap has any."""
    stream = hourly.stream
    with stream.load.flowing():
        before = stream.commits_past(stream.fence())
        stream.pipeline.patch({"job": {"image": newer_image, "codeFrom": None}})
        row = hourly.successor(before)
    assert {each["image"] for each in stream.pipeline.driver()["spec"]["containers"]} == {newer_image}
    assert hourly.check().epoch == row.epoch == before.epoch + 1


@pytest.mark.long
def test_a_drained_node_and_a_killed_operator_leave_rows_and_state_of_a_plain_count(
    hourly: Compared, faults: Faults, kubectl: Kubectl
) -> None:
    """`kubectl drain` of the driver's node for this pipeline; then SIGKILL of the operator.

    Where the only worker is on that node too, the batch in progress cannot end, and the successor repeats it.
    """
    stream, loss = hourly.stream, NodeLoss(kubectl, faults.nodes)
    driver = stream.pipeline.driver()
    name = driver["metadata"]["name"]
    with stream.load.flowing():
        before = stream.commits_past(stream.fence())
        ours = f"{PIPELINE_LABEL}={stream.pipeline.name}"
        with exit_codes(kubectl, name) as codes, loss.drained(driver["spec"]["nodeName"], selector=ours):
            row = hourly.successor(before)
        assert codes <= {str(int(code)) for code in (ExitCode.STOPPED, ExitCode.FENCED)}, codes
        with faults.operator_killed():
            stream.commits_past(row)
        stream.commits_past(stream.fence())
    assert hourly.check().epoch == before.epoch + 1


@pytest.mark.long
def test_a_rewind_with_deletion_of_output_leaves_rows_and_state_of_a_plain_count(
    hourly: Compared, kubectl: Kubectl
) -> None:
    """Two rewinds to a snapshot under load: the first one is deleted while the pipeline stops, the second one ends."""
    stream = hourly.stream
    target = {"snapshot": snapshot(stream, kubectl, "before")}
    hourly.reads += 2
    with stream.load.flowing():
        row = stream.commits_past(stream.commits_past(stream.fence()))
        rewind(stream, "hourly-cancelled", to=target)
        eventually(
            "it stops the pipeline", lambda: "Stop" in steps(kubectl, "hourly-cancelled"), seconds=120, pause=0.1
        )
        kubectl.delete(REWIND, "hourly-cancelled")
        row = hourly.successor(row)
        rewind(stream, "hourly-back", to=target)
        done = ended(stream, "hourly-back")
        stream.commits_past(stream.fence(), seconds=180)
    assert done["rowsToDelete"] > 0
    assert hourly.check().epoch > row.epoch


@pytest.mark.long
def test_a_pinned_state_is_the_same_after_the_pipeline_has_committed_more_and_the_reader_was_rewound(
    hourly: Compared, kubectl: Kubectl
) -> None:
    """No fault. Each record is looked up in the state of a snapshot, and again after all rows were deleted."""
    counted = hourly.stream
    hourly.check()
    pinned = hourly.recompute(hourly.log()).state
    with looking_up(counted, kubectl, snapshot(counted, kubectl, "pinned")) as reader:
        with counted.load.flowing():
            counted.commits_past(counted.commits_past(counted.fence()))
            reader.commits_past(None)
        hourly.check()
        row = check_lookups(hourly, reader, pinned)
        rewind(reader, "hourly-lookups-replay", to={"offsets": dict.fromkeys(row.offsets, 0)})
        assert ended(reader, "hourly-lookups-replay")["rowsToDelete"] == sum(row.offsets.values())
        assert check_lookups(hourly, reader, pinned).epoch == row.epoch + 1


@pytest.mark.long
def test_a_record_that_fails_is_left_out_by_the_command(hourly: Compared) -> None:
    """A producer sends a record that cannot be read, under load; the command is that of the runbook."""
    stream, pipeline = hourly.stream, hourly.stream.pipeline
    topic = stream.load.ledger.topic
    with stream.load.flowing():
        before = stream.commits_past(stream.fence())
        partition, offset = sent(stream, b"not a flight")
        hourly.left_out.add((partition, offset))
        stalled = pipeline.wait_condition("Stalled", "True", reason="PoisonRecord", seconds=240)
        assert f"{topic}/{partition}@{offset} fails" in stalled["message"]
        stopped = present(stream.fence())
        assert stopped.offsets[f"{topic}/{partition}"] <= offset
        place = {"TOPIC": topic, "PARTITION": str(partition), "OFFSET": str(offset)}
        (skip,) = (each for each in commands([RUNBOOK]) if each.startswith("fencepost dead-letters skip"))
        said = Reader.of(stream.place.environment, pipeline, **place).run(skip)
        run_as(stream, "kim", command_in(said.warnings))
        hourly.successor(stopped)
    row = hourly.check()
    assert row.offsets[f"{topic}/{partition}"] > offset
    assert row.epoch > before.epoch


def sent(stream: Stream, value: bytes) -> tuple[int, int]:
    """Produce a record beside the load; return its partition and offset."""
    places: list[tuple[int, int]] = []

    def delivered(error: object, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert error is None and partition is not None and offset is not None  # noqa: PT018 - one reason
        places.append((partition, offset))

    producer = Producer({"bootstrap.servers": stream.load.bootstrap, "acks": "all"})
    producer.produce(stream.load.ledger.topic, value=value, on_delivery=delivered)
    assert producer.flush(60) == 0
    (place,) = places
    return place


@pytest.mark.long
def test_a_rewind_with_empty_state_counts_from_its_target_on(hourly: Compared) -> None:
    """To offsets, under load: rows beyond them are deleted, and what was counted before does not count again."""
    stream = hourly.stream
    target = dict.fromkeys(present(stream.fence()).offsets, EMPTIED_AT)
    hourly.reads += 1
    hourly.recompute = partial(counted_from, {int(key.rpartition("/")[2]): at for key, at in target.items()})
    with stream.load.flowing():
        row = stream.commits_past(stream.fence())
        rewind(stream, "hourly-emptied", to={"offsets": target}, emptyState=True)
        done = ended(stream, "hourly-emptied")
    assert done["rowsToDelete"] > 0
    assert "snapshot" not in done["target"]
    assert hourly.check().epoch == row.epoch + 1


def snapshot(stream: Stream, kubectl: Kubectl, name: str) -> str:
    """Take a snapshot of this name; return its id."""
    kubectl.run("annotate", KIND, stream.pipeline.name, f"{SNAPSHOT_ANNOTATION}={name}", "--overwrite")

    def taken() -> str | None:
        recent = stream.pipeline.status().get("snapshots", {}).get("recent", [])
        return next((each["id"] for each in recent if each.get("name") == name), None)

    return eventually(f"snapshot {name} is taken", taken, seconds=60)


def steps(kubectl: Kubectl, name: str) -> set[str]:
    """Return the steps that a rewind has begun."""
    found = present(kubectl.get(REWIND, name)).get("status", {})
    return {step["name"] for step in found.get("steps", []) if step["state"] != "Pending"}


@pytest.mark.long
@pytest.mark.outage
def test_a_lost_node_leaves_rows_and_state_of_a_plain_count(hourly: Compared, faults: Faults, kubectl: Kubectl) -> None:
    """`docker pause` of the node that the driver is on until a successor has committed; then the zombie wakes."""
    stream, loss = hourly.stream, NodeLoss(kubectl, faults.nodes)
    with stream.load.flowing():
        row = stream.commits_past(stream.fence())
        if stream.pipeline.driver()["spec"]["nodeName"] != LOST:
            with loss.cordoned(DATA_NODE):
                faults.evict(stream.pipeline.driver()["metadata"]["name"])
                row = hourly.successor(row)
        assert stream.pipeline.driver()["spec"]["nodeName"] == LOST
        with two_operators(kubectl, loss, leader_on=LOST):
            stream.kills += 1
            with loss.silent(LOST):
                now = hourly.successor(row, seconds=600)
            stream.commits_past(now)
    assert hourly.check().epoch > row.epoch


@pytest.mark.long
@pytest.mark.outage
def test_five_minutes_without_cassandra_leave_rows_and_state_of_a_plain_count(hourly: Compared, faults: Faults) -> None:
    """The StatefulSet is scaled to 0 under load: fence, state and output are away at once, and no record is blamed."""
    stream, pipeline = hourly.stream, hourly.stream.pipeline

    def waits() -> None:
        assert not pipeline.condition("Stalled"), "an outage needs no user"

    with stream.load.flowing():
        before = stream.commits_past(stream.fence())
        stream.kills += 1  # a run that ends without Cassandra may leave a change not on record
        with faults.down("cassandra"):
            pipeline.wait_condition("Ready", "False", reason=Reason.CASSANDRA_UNREACHABLE, seconds=SILENCE)
            throughout(SILENCE, waits, pause=5)
        row = stream.commits_past(stream.commits_past(before, seconds=240))
    assert hourly.check().epoch == row.epoch <= before.epoch + 1
