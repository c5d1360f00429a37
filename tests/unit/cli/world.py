"""A pipeline, its fence row with a history, its log and its sinks, as the command line's ports give them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from typer.testing import CliRunner, Result

from fakes.manifests import body
from fencepost.batch import Range, Watermarks
from fencepost.contract import Verdict
from fencepost.contract.code_check import CodeProblem, CodeRequest
from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.history import NO_CHANGE, Change, change, hour_of
from fencepost.fence.left_out import LeftOut
from fencepost.fence.letters import DeadLetter, letter
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.snapshots import Snapshot, Trigger, snapshot_id, snapshot_of
from fencepost.local.record_files import copy_to_parquet
from fencepost.local.record_lines import FileRecord
from fencepost.local.request import Event, Request
from fencepost.state.chunks import ChunkStore
from fencepost.state.memory import MemoryChunks
from fencepost.state.progress import Committed
from fencepost.state.questions import Answer, OperatorsQuestion, RowsQuestion
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.app import app
from fencepost_cli.errors import CliError
from fencepost_cli.ports import (
    Annotation,
    Certificate,
    Certified,
    Column,
    Dial,
    FenceAccess,
    Found,
    Json,
    KafkaAccess,
    Listing,
    LocalEnd,
    NewRecord,
    Ports,
    Related,
    StoreToCertify,
    Unread,
    directly,
)
from fencepost_cli.retention import Change as RetentionChange
from fencepost_cli.retention import Setting, TopicSettings
from fencepost_operator.api import (
    FAIL_OVER_ANNOTATION,
    SNAPSHOT_ANNOTATION,
    ObjectKey,
    RewindSpec,
    RewindStatus,
    SnapshotsStatus,
    SnapshotStatus,
    Spec,
    Trial,
    TrialSpec,
    parse,
)

KEY = ObjectKey("shop", "orders")
ROW = "default/shop/orders"
TABLE = (
    Column("topic", "partition_key", 0, "text"),
    Column("partition", "partition_key", 1, "int"),
    Column("offset", "clustering", 0, "bigint"),
    Column("amount", "regular", -1, "double"),
)


def story() -> list[FenceRow]:
    """Two runs of one partition, through the real protocol: three commits, up to offset 12 of 15."""
    table = MemoryFenceTable()
    fence = Fence(table, ROW)

    def run(before: FenceRow, driver: str, ends: Sequence[int]) -> FenceRow:
        taken = fence.take_over(before, owner="cluster/uid")
        first = dict(before.offsets) or {"orders/0": 0}
        planned = dict(before.planned) or {"orders/0": ends[0]}
        start = Starting(offsets=first, planned=planned, topic_ids={"orders": "id"}, log_ends={"orders/0": 14})
        row = fence.claim(epoch=taken.epoch, driver=driver, code="image job:transform", start=lambda _: start)
        for end in ends[1:]:
            moved = row.planned["orders/0"] - row.offsets["orders/0"]
            row = fence.commit(row, offsets=row.planned, planned={"orders/0": end}, records=moved, duration_ms=7)
        return row

    first = run(fence.create("cluster/uid"), "pod-1", (5, 9, 12))
    run(first, "pod-2", (12, 12))
    return table.history


def history(rows: Sequence[FenceRow], *, every: timedelta = timedelta(seconds=1)) -> list[Change]:
    """The records of these rows, the last of them of now."""
    now = datetime.now(UTC)
    moments = [now - every * (len(rows) - 1 - number) for number in range(len(rows))]
    records: list[Change] = []
    for number, (row, moment) in enumerate(zip(rows, moments, strict=True)):
        same_hour = number > 0 and hour_of(moments[number - 1]) == hour_of(moment)
        record = change(rows[number - 1] if same_hour else None, row, moment)
        records.append(
            Change(
                **{name: getattr(record, name) for name in Change.__dataclass_fields__ if name != "written_at"},
                written_at=int(moment.timestamp() * 1_000_000),
            )
        )
    return records


def dead_letter(
    topic: str,
    offset: int,
    *,
    value: bytes | None = b'{"n": 1}',
    key: bytes | None = b"k",
    headers: Sequence[tuple[str, bytes | None]] = (("trace", b"\x00\xff"),),
    error: str = "ValueError: no price",
    topic_id: str = "id",
    age: timedelta = timedelta(minutes=5),
) -> DeadLetter:
    """A record of partition 0 that a driver set aside."""
    one = letter(
        topic=topic, partition=0, topic_id=topic_id, offset=offset, epoch=2, code="image job:transform",
        reason="TransformFailed", error=error, traceback='Traceback:\n  File "job.py"\n    raise',
        timestamp=datetime(2026, 1, 2, tzinfo=UTC), key=key, value=value, headers=headers,
    )  # fmt: skip
    return replace(one, at=datetime.now(UTC) - age)


@dataclass(slots=True)
class World:
    """Implements all ports; fields may be replaced before a command runs."""

    row: FenceRow | None = None
    moves: bool = True
    """Whether the operator begins a move that is asked for."""
    records: list[Change] = field(default_factory=list)
    log: Watermarks | CliError = field(
        default_factory=lambda: Watermarks(begins={"orders/0": 0}, ends={"orders/0": 15}, topic_ids={"orders": "id"})
    )
    tables: dict[str, Sequence[Column]] = field(default_factory=lambda: {"shop.orders": TABLE})
    positions_of: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)
    spec_changes: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, Mapping[str, str]] = field(default_factory=dict)
    accepted_losses: list[AcceptedLoss] = field(default_factory=list)
    snapshot_rows: list[Snapshot] = field(default_factory=list)
    kept_letters: dict[tuple[str, int, int, str], DeadLetter] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    leader_epochs: dict[str, int] = field(default_factory=lambda: {"orders/0@13": 6})
    """Of Kafka's records, by place."""
    marks_until_outage: int | None = None
    kafka_records: list[FileRecord] = field(default_factory=list)
    """What Kafka has, by partition and offset."""
    rows_of: dict[str, dict[tuple[Any, ...], tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    """Rows of a table by their key, with the time of the write."""
    config_maps: dict[str, Mapping[str, str]] = field(default_factory=dict)
    local: Callable[[Request, Callable[[Event], object]], Verdict] | None = None
    """What a local run does, and how it ends."""
    produced: list[NewRecord] = field(default_factory=list)
    refuses: CliError | None = None
    """What Kafka answers to a record."""
    retention: dict[str, dict[str, Setting]] = field(
        default_factory=lambda: {
            "orders": {"retention.ms": Setting(86_400_000, True), "retention.bytes": Setting(-1, False)}
        }
    )
    inherited: dict[str, int] = field(default_factory=lambda: {"retention.ms": 604_800_000, "retention.bytes": -1})
    """What a topic without settings of its own has."""
    denied: CliError | None = None
    """What Kafka answers to a change of a topic."""
    writes_until_outage: int | None = None
    oldest: datetime | None = None
    lag: int | None = 0
    conflicts: int = 0
    """How often another writer changes the pipeline between the command's read and its write."""
    rewinds: list[RewindSpec] = field(default_factory=list)
    rewind_statuses: list[RewindStatus | None] = field(default_factory=lambda: [RewindStatus(phase="Completed")])
    """What the operator says of a rewind, one after the other."""
    operator_answers: bool = True
    """Whether an operator takes the snapshot that an annotation asks for."""
    annotations: dict[str, str] = field(default_factory=dict)
    scope: str | None = "default"
    answer: Answer = field(default_factory=Answer)
    """What the reader of the state answers."""
    before_answer: Callable[[], object] = lambda: None
    missing: Sequence[str] = ()
    """What the cluster lacks of what a spec names, as 'Kind/name'."""
    code_problems: Sequence[CodeProblem] = ()
    inspected: Mapping[str, Any] = field(default_factory=dict)
    """What is found in an image."""
    certified: Sequence[Certified] = ()
    """How each promise of a store ended."""
    any_name: bool = False
    """Whether every name is the pipeline's."""
    body: dict[str, Any] = field(default_factory=body)
    """The pipeline as the API server has it."""
    related_objects: dict[Related, list[dict[str, Any]] | CliError] = field(default_factory=dict)
    merged: list[tuple[ObjectKey, Json]] = field(default_factory=list)
    created_trials: list[tuple[ObjectKey, TrialSpec]] = field(default_factory=list)
    changes_read: int = 0
    """Changes of the history that Cassandra returned."""
    trials: list[Trial | None] = field(default_factory=lambda: [None])
    """What the API server has of a trial, one after the other."""
    deleted_trials: list[ObjectKey] = field(default_factory=list)
    ended: list[ObjectKey] = field(default_factory=list)
    """Pods that were deleted."""
    log_text: str | CliError = ""
    metrics_text: str | CliError = ""
    deployments: list[dict[str, Any]] | CliError = field(default_factory=list)
    no_store: CliError | None = None
    """What Cassandra answers to a connection."""
    asked: list[Any] = field(default_factory=list)
    contexts: list[str | None] = field(default_factory=list)

    @classmethod
    def usual(cls) -> World:
        rows = story()
        world = cls(row=rows[-1], records=history(rows))
        for number, (trigger, name) in enumerate([(Trigger.ON_DEMAND, "before-the-sale"), (Trigger.SCHEDULE, None)]):
            one = snapshot_id(datetime.now(UTC) - timedelta(hours=number + 2), "uid", trigger)
            world.snapshot_rows.append(snapshot_of(rows[-1 - number], id=one, trigger=trigger, name=name))
        world.positions_of["shop.orders"] = [("orders", 0, offset) for offset in range(12)]
        return world

    @property
    def ports(self) -> Ports:
        return Ports(
            cluster=self._cluster, store=self._store, log=self._log, configs=self._configs, producer=self._producer,
            state=self._state, code=self._code, image=self._image, local=self._local, objects=self._objects,
            serve=self._serve,
            certify=self._certify,
            records=self._records, parquet=copy_to_parquet,
            leader_epoch=self._leader_epoch,
        )  # fmt: skip

    def run(self, *words: str, columns: int = 200) -> Result:
        return CliRunner().invoke(app, list(words), obj=self.ports, env={"COLUMNS": str(columns)})

    def _leader_epoch(self, access: KafkaAccess, topic: str, partition: int, offset: int) -> int:
        del access
        place = f"{topic}/{partition}@{offset}"
        if place not in self.leader_epochs:
            raise CliError(f"Kafka has no record at {place}", remedy="name another")
        return self.leader_epochs[place]

    def json(self, *words: str, code: int = 0) -> Any:
        ended = self.run(*words, "-o", "json")
        assert ended.exit_code == code, ended.output
        return json.loads(ended.stdout)

    def refused(self, *words: str) -> str:
        """Return what a command that fails says of it."""
        ended = self.run(*words)
        assert ended.exit_code == 2, ended.output
        return ended.stderr

    def keep(self, one: DeadLetter) -> None:
        self.kept_letters[one.topic, one.partition, one.offset, one.topic_id] = one

    # The ports

    def _objects(self, context: str | None) -> World:
        return self._cluster(context)

    def locate(self, name: str, namespace: str | None) -> ObjectKey:
        return ObjectKey(namespace or "shop", name)

    def pipelines(self, namespace: str | None) -> Listing:
        return Listing([self.body], namespace or "")

    def pipeline(self, key: ObjectKey) -> Json:
        if key != KEY and not self.any_name:
            raise CliError(f"pipeline {key} not found", remedy="see `kubectl get spl`")
        return self.body

    def related(self, key: ObjectKey, kind: Related) -> Sequence[Json]:
        assert key.namespace == "shop"
        found = self.related_objects.get(kind, [])
        if isinstance(found, CliError):
            raise found
        return found

    def merge(self, key: ObjectKey, body: Json) -> None:
        self.merged.append((key, body))
        self.body["spec"] |= body.get("spec", {})
        if self.moves and FAIL_OVER_ANNOTATION in body.get("metadata", {}).get("annotations", {}):
            self.body["status"]["state"] = "Standby"

    def create_trial(self, pipeline: ObjectKey, spec: TrialSpec, name: str | None) -> ObjectKey:
        made = ObjectKey(pipeline.namespace, name or "orders-x7d2q")
        self.created_trials.append((made, spec))
        return made

    def trial(self, key: ObjectKey) -> Trial | None:
        assert key.name
        return self.trials.pop(0) if len(self.trials) > 1 else self.trials[0]

    def delete_trial(self, trial: Trial) -> None:
        self.deleted_trials.append(trial.key)

    def container_log(
        self, pod: ObjectKey, show: Callable[[str], object], *, container: str, tail: int | None, follow: bool = False
    ) -> None:
        self.asked.append((pod, container, tail, follow))
        if isinstance(self.log_text, CliError):
            raise self.log_text
        show(self.log_text)

    def driver_metrics(self, pod: ObjectKey) -> str:
        self.asked.append(pod)
        if isinstance(self.metrics_text, CliError):
            raise self.metrics_text
        return self.metrics_text

    def end_run(self, pod: ObjectKey) -> None:
        self.ended.append(pod)

    def secret_values(self, body: Json) -> Collection[str]:
        assert body["metadata"]["name"]
        return {value for secret in self.secrets.values() for value in secret.values()}

    def operators(self) -> Sequence[Json]:
        if isinstance(self.deployments, CliError):
            raise self.deployments
        return self.deployments

    def _serve(self, made: Callable[[int], Any], port: int, listening: Callable[[int], None]) -> None:
        self.asked.append(made(port or 8765))
        listening(port or 8765)

    def _cluster(self, context: str | None) -> World:
        self.contexts.append(context)
        return self

    def find(self, name: str, namespace: str | None) -> Found:
        key = ObjectKey(namespace or "shop", name)
        if key != KEY and not self.any_name:
            raise CliError(f"pipeline {key} not found", remedy="see `kubectl get spl`")
        spec = parse(body(**self.spec_changes))
        assert isinstance(spec, Spec), spec
        return Found(
            key=KEY,
            spec=spec,
            scope=self.scope,
            fence_secret=self.secrets.get("cassandra"),
            kafka_secret=self.secrets.get("kafka"),
        )

    @contextmanager
    def forwards(self, namespace: str, notify: Callable[[str], None]) -> Iterator[World]:
        assert namespace == "shop"
        assert callable(notify)
        yield self

    def config_map(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        assert key == KEY
        return self.config_maps.get(name, {})

    def dial(self, place: str, option: str) -> Dial:
        assert option.startswith("--")
        assert place.startswith(("spec.", "--"))
        return directly

    def annotate(self, key: ObjectKey, annotation: str, value: str) -> None:
        assert key == KEY
        self.annotations[annotation] = value

    def annotation(self, key: ObjectKey, annotation: str) -> Annotation:
        assert key == KEY
        return Annotation(self.annotations.get(annotation), "7")

    def replace_annotation(self, key: ObjectKey, annotation: str, value: str | None, version: str) -> bool:
        assert (key, version) == (KEY, "7")
        if self.conflicts:
            self.conflicts -= 1
            return False
        self.annotations.pop(annotation, None)
        if value is not None:
            self.annotations[annotation] = value
        return True

    def unread(self, key: ObjectKey) -> Unread:
        assert key == KEY
        return Unread(self.lag, "orders" if self.oldest else None, self.oldest)

    def create_rewind(self, pipeline: ObjectKey, spec: RewindSpec, name: str | None) -> ObjectKey:
        assert pipeline == KEY
        self.rewinds.append(spec)
        return ObjectKey("shop", name or "orders-x7d2q")

    def rewind(self, key: ObjectKey) -> RewindStatus | None:
        assert key.namespace == "shop"
        return self.rewind_statuses.pop(0) if len(self.rewind_statuses) > 1 else self.rewind_statuses[0]

    def snapshots(self, key: ObjectKey) -> SnapshotsStatus:
        assert key == KEY
        name = self.annotations.get(SNAPSHOT_ANNOTATION)
        if name is None or not self.operator_answers:
            return SnapshotsStatus(message="the account may not write" if name else "")
        made = SnapshotStatus(id="an-id", trigger="OnDemand", at=datetime.now(UTC), name=name, version=7)
        return SnapshotsStatus(count=1, last=made, recent=(made,), requested=name)

    @contextmanager
    def _store(self, access: FenceAccess) -> Iterator[_Store]:
        self.asked.append(access)
        if self.no_store is not None:
            raise self.no_store
        yield _Store(self)

    @contextmanager
    def _configs(self, access: KafkaAccess) -> Iterator[_Configs]:
        self.asked.append(access)
        yield _Configs(self)

    @contextmanager
    def _producer(self, access: KafkaAccess) -> Iterator[World]:
        self.asked.append(access)
        yield self

    def send(self, record: NewRecord) -> str:
        if self.refuses is not None:
            raise self.refuses
        self.produced.append(record)
        return f"{record.topic}/{record.partition or 0}@{99 + len(self.produced)}"

    def _records(self, access: KafkaAccess, ranges: Sequence[Range]) -> Generator[FileRecord]:
        self.asked.append((access, ranges))
        for part in ranges:
            yield from (
                one
                for one in self.kafka_records
                if (one.topic, one.partition) == (part.topic, part.partition)
                and part.start <= (one.offset or 0) < part.until
            )

    def _state(
        self, committed: Committed, chunks: ChunkStore, question: OperatorsQuestion | RowsQuestion
    ) -> tuple[Answer, Mapping[int, int]]:
        assert isinstance(chunks, MemoryChunks)
        self.asked.append((committed, question))
        self.before_answer()
        return self.answer, {0: 4096}

    def referenced(self, spec: Spec, name: str, namespace: str | None) -> tuple[Found, Sequence[str]]:
        found = Found(
            key=ObjectKey(namespace or "shop", name), spec=spec, scope=None,
            fence_secret={"username": "u", "password": "p"},
        )  # fmt: skip
        return found, self.missing

    def _code(self, request: CodeRequest, image: str | None) -> Sequence[CodeProblem]:
        self.asked.append((request, image))
        return self.code_problems

    def _image(self, image: str) -> Mapping[str, Any]:
        self.asked.append(image)
        return self.inspected

    def _local(self, request: Request, show: Callable[[Event], object], _is_stale: Callable[[], bool]) -> LocalEnd:
        assert self.local is not None, request
        self.asked.append(request)
        return LocalEnd(verdict=self.local(request, show), is_interrupted=False)

    def _certify(self, store: StoreToCertify, show: Callable[[str], object]) -> Certificate:
        self.asked.append(store)
        show("a row is inserted once")
        return Certificate(version="5.0.9", protocol=5, scratch="fencepost_certify_1", promises=self.certified)

    def _log(self, access: KafkaAccess) -> Watermarks:
        self.asked.append(access)
        if isinstance(self.log, CliError):
            raise self.log
        return self.log


@dataclass(frozen=True, slots=True)
class _Configs:
    world: World

    def read(self, topic: str) -> TopicSettings:
        inherited = {name: Setting(value, False) for name, value in self.world.inherited.items()}
        return TopicSettings(deletes=True, settings=inherited | self.world.retention[topic])

    def check(self, change: RetentionChange) -> None:
        assert change.values
        if self.world.denied is not None:
            raise self.world.denied

    def write(self, change: RetentionChange) -> None:
        if self.world.writes_until_outage == 0:
            raise CliError("Kafka did not answer", remedy="wait")
        if self.world.writes_until_outage is not None:
            self.world.writes_until_outage -= 1
        self.check(change)
        for name, value in change.values.items():
            self.world.retention[change.topic].pop(name, None)
            if value is not None:
                self.world.retention[change.topic][name] = Setting(value, True)


@dataclass(frozen=True, slots=True)
class _Store:
    world: World

    def row(self) -> FenceRow | None:
        return self.world.row

    def changes(self, hour: datetime, *, after: tuple[int, int] = NO_CHANGE) -> Sequence[Change]:
        of_hour = [record for record in self.world.records if record.hour == hour]
        found = [record for record in of_hour if (record.epoch, record.version) > after]
        self.world.changes_read += len(found)
        return found

    def first_change(self, hour: datetime, *, epoch: int = 0) -> Change | None:
        found = [record for record in self.changes(hour) if record.epoch >= epoch]
        return min(found, key=lambda record: (record.epoch, record.version), default=None)

    def accepted(self) -> Sequence[AcceptedLoss]:
        return self.world.accepted_losses

    def snapshots(self) -> Sequence[Snapshot]:
        return self.world.snapshot_rows

    def snapshot(self, found: Snapshot) -> Snapshot | None:
        return found if found in self.world.snapshot_rows else None

    def chunks(self) -> ChunkStore:
        return MemoryChunks()

    def columns(self, keyspace: str, table: str) -> Sequence[Column]:
        return self.world.tables.get(f"{keyspace}.{table}", ())

    def positions(self, keyspace: str, table: str, partition_key: Sequence[str]) -> Iterator[tuple[str, int, int]]:
        assert partition_key
        yield from self.world.positions_of.get(f"{keyspace}.{table}", ())

    def rows(
        self, keyspace: str, table: str, *, key: Sequence[str], columns: Sequence[str], timed: str | None,
        keys: Iterable[Sequence[Any]],
    ) -> Iterator[tuple[int | None, Sequence[Any]] | None]:  # fmt: skip
        assert key
        found = self.world.rows_of.get(f"{keyspace}.{table}", {})
        for each in keys:
            written = found.get(tuple(each))
            if written is None:
                yield None
            else:
                yield written[0] if timed else None, [written[1].get(name) for name in columns]

    def letters(self, topic: str, partition: int, *, start: int, until: int) -> Iterator[DeadLetter]:
        for _, one in sorted(self.world.kept_letters.items()):
            if (one.topic, one.partition) == (topic, partition) and start <= one.offset < until:
                yield replace(one, key=None, value=None, headers=None, traceback=None)

    def letter(self, listed: DeadLetter) -> DeadLetter | None:
        return self.world.kept_letters.get((listed.topic, listed.partition, listed.offset, listed.topic_id))

    def mark_retried(self, letter: DeadLetter, *, by: str, at: datetime, to: str) -> None:
        if self.world.marks_until_outage == 0:
            raise CliError("Cassandra did not answer", remedy="wait")
        if self.world.marks_until_outage is not None:
            self.world.marks_until_outage -= 1
        self.world.keep(replace(letter, retried_at=at, retried_by=by, retried_to=to))

    def leave_out(self, record: LeftOut) -> None:
        self.world.left_out.append(record)
