"""What each event does to the world and to the operators, and when it is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from fakes.manifests import KEY, body
from fencepost.contract import ExitCode
from fencepost_operator.api import (
    ACCEPT_LOSS_ANNOTATION,
    CONFIRM_DEAD_ANNOTATION,
    PAUSED_ANNOTATION,
    RETRY_ANNOTATION,
    Reason,
    RunStatus,
)
from fencepost_operator.observation import PodIssue
from simulation import events as e
from simulation import other_words
from simulation.drivers import SimulatedDriver
from simulation.history import Setup
from simulation.invariants import Target
from simulation.operators import CASSANDRA, KAFKA, Operator
from simulation.world import SimulatedWorld

CODE: Final = "ConfigMap/code"
TOPIC: Final = "orders"
_FLAGS: Final = frozenset({"kafka_down", "cassandra_down", "purge_hangs"})
LOOKS: Final = 2.0
"""Seconds between two looks of a user at a status, and between two deletions of retention."""
AFTER_HOSTILE: Final = 10
"""Records that come after one that fails: without another one to compare, the code may be the cause."""
MOST_PARTITIONS: Final = 4
"""Two more than at the start: a rewind to before more growths orders only the last two."""
UPGRADE: Final = {"maxAttempts": 2, "stableAfter": {"commits": 1, "window": "5s"}}


@dataclass(slots=True)
class Faults:
    """Applies events. `over` has the effects that end after a time: when, and how."""

    world: SimulatedWorld
    operators: list[Operator]
    setup: Setup
    over: list[tuple[datetime, Callable[[], object]]] = field(default_factory=list)
    created: int = 0
    rewinds: int = 0

    def begin(self) -> None:
        """Create the pipeline and what it names."""
        self.world.references[KEY.namespace, CODE] = "code"
        self._create()

    def settle(self) -> None:
        """End what is over by now."""
        for ending in [one for one in self.over if one[0] <= self.world.now]:
            self.over.remove(ending)
            ending[1]()

    def calm(self) -> None:
        """End every fault; what users asked for stays, and no more records come."""
        world = self.world
        for _, ending in list(self.over):
            ending()
        self.over.clear()
        world.rate, world.lose_answers, world.late = 0.0, [], []
        world.ends_at_claim.clear()
        world.busy_until = world.lost_until = world.now
        bad = {image: code for image, code in world.broken_images.items() if code == ExitCode.BAD_SPEC}
        world.broken_images = bad
        for operator in self.operators:
            operator.thaw()
        for driver in world.processes:
            driver.frozen = driver.hangs = driver.is_mute = False
        for zombie in world.buried:
            if zombie.alive:
                zombie.end(world.now, 137)

    def confirm_death(self) -> None:
        """Do what the pipeline asks its user for: see that nothing of the run lives, and say so.

        Where the operator has the proof itself, it has to find it alone.
        """
        pipeline = self.world.pipeline(KEY)
        run = pipeline.status.run if pipeline is not None else None
        if pipeline is None or run is None or pipeline.annotations.get(CONFIRM_DEAD_ANNOTATION) == run.name:
            return
        if not any(condition.reason == Reason.DEATH_UNPROVEN for condition in pipeline.status.conditions):
            return
        if self._is_proven(run):
            return
        for driver in self.world.processes:
            if driver.alive and driver.config.epoch == run.epoch:
                driver.end(self.world.now, 137)
        self._annotate(CONFIRM_DEAD_ANNOTATION, run.name)

    def _is_proven(self, run: RunStatus) -> bool:
        """Return whether the run's only driver was seen, has ended, and left a node that is there and the same."""
        node, row = self.world.nodes.get(run.node_name or ""), next(iter(self.world.table.rows.values()), None)
        if node is None or not node.reachable or node.uid != run.node_uid or run.force_deleted:
            return False
        if row is not None and row.epoch == run.epoch and row.driver not in {None, run.pod_uid}:
            return False
        drivers = [driver for driver in self.world.processes if driver.config.epoch == run.epoch]
        return all(driver.uid == run.pod_uid and not driver.alive for driver in drivers)

    def apply(self, event: e.Event) -> None:
        """Let it happen."""
        match event:
            case (
                e.Kill()
                | e.KillAtClaim()
                | e.Freeze()
                | e.Hang()
                | e.Mute()
                | e.SlowBatches()
                | e.TooLargeBatches()
                | e.FailingCode()
                | e.BreakImage()
            ):
                self._driver(event)
            case (
                e.LoseNode() | e.Drain() | e.DeletePod() | e.DeleteJob() | e.StartTwin() | e.NoPods() | e.FailInstalls()
            ):
                self._kubernetes(event)
            case e.StuckPurges() | e.DamageCluster():
                self._cluster(event)
            case e.LoseKafka() | e.LoseCassandra() | e.LoseAnswer():
                self._data(event)
            case e.ExpireRecords() | e.KeepExpiring() | e.HostileRecord() | e.GrowTopic() | e.RecreateTopic():
                self._log(event)
            case e.Blindness() | e.StepClock():
                self._senses(event)
            case e.Stale() | e.Unseen() | e.Interrupt() | e.BusyFleet() | e.LostTogether() | e.LoseRevisions():
                self._operator(event)
            case e.NewChart() | e.OtherWords():
                self._release(event)
            case _:
                self._user(event)

    def _later(self, seconds: float, ending: Callable[[], object]) -> None:
        self.over.append((self.world.now + timedelta(seconds=seconds), ending))

    def _set(self, name: str, value: object, seconds: float) -> None:
        """Set a field of the world for some time."""
        usual = "" if name == "installs" else False if name in _FLAGS else None
        setattr(self.world, name, value)
        self._later(seconds, lambda: setattr(self.world, name, usual))

    # drivers

    def _living(self) -> list[SimulatedDriver]:
        return [driver for driver in self.world.processes if driver.alive and driver.started_at is not None]

    def _driver(self, event: e.Event) -> None:  # noqa: C901, PLR0912 - a table
        living = self._living()
        match event:
            case e.Kill(code=code, written=written):
                for driver in living[-1:]:
                    if written and driver.row is not None:
                        driver.dies_before_commit = code
                    else:
                        driver.end(self.world.now, code)
            case e.KillAtClaim(code=code):
                self.world.ends_at_claim.append(code)
            case e.Freeze(seconds=seconds):
                _freeze(living, frozen=True)
                self._later(seconds, lambda: _freeze(living, frozen=False))
            case e.Hang():
                for driver in living[-1:]:
                    driver.hangs = True
            case e.Mute(seconds=seconds):
                _mute(living, is_mute=True)
                self._later(seconds, lambda: _mute(living, is_mute=False))
            case e.SlowBatches(seconds=seconds, lasts=lasts):
                for driver in living[-1:]:
                    driver.batch_takes = timedelta(seconds=seconds)
                self._set("slow_batches", seconds, lasts)
            case e.TooLargeBatches(fits=fits, lasts=lasts):
                for driver in living[-1:]:
                    driver.fits = fits
                self._set("fits", fits, lasts)
            case e.FailingCode(code=code, lasts=lasts):
                self._set("failing_code", code, lasts)
            case e.BreakImage():
                self._break_image(event)

    def _break_image(self, event: e.BreakImage) -> None:
        world, job = self.world, _job(event.number)
        image = job["image"]
        world.broken_images[image] = event.code
        if event.lasts:
            self._later(event.lasts, lambda: world.broken_images.pop(image, None))
        if event.upgrades and KEY in world.objects:
            world.change(KEY, job=job)

    # Kubernetes

    def _kubernetes(self, event: e.Event) -> None:  # noqa: C901, PLR0912 - a table
        world, job = self.world, self.world.newest
        match event:
            case e.LoseNode(part="driver", seconds=seconds, removed=removed):
                if job is not None and job.pod is not None and world.is_heard(job.pod.node):
                    self._lose_node(job.pod.node, seconds, removed=removed)
            case e.LoseNode(part=part, seconds=seconds):
                if world.sets.get(KEY):
                    world.lose_node(KEY, part)
                    self._later(seconds, self._recover_cluster)
            case e.Drain(workers=workers, seconds=seconds):
                if world.sets.get(KEY):
                    world.drain(KEY, ("master", "worker") if workers else ("master",))
                    self._later(seconds, lambda: world.uncordon(KEY))
            case e.DeletePod(force=force):
                if job is not None and job.pod is not None:
                    world.delete_pod(job.pod, force=force)
            case e.DeleteJob(cascade=cascade):
                if job is not None:
                    world.delete_job(KEY, job.name, cascade=cascade)
            case e.StartTwin():
                if job is not None:
                    world.start_twin(job)
            case e.NoPods(reason=reason, seconds=seconds):
                self._set(
                    "issue", PodIssue(pod="orders-pod", reason=reason, message="0/3 nodes are available"), seconds
                )
            case e.FailInstalls(how=how, seconds=seconds):
                self._set("installs", how, seconds)

    def _cluster(self, event: e.StuckPurges | e.DamageCluster) -> None:
        match event:
            case e.StuckPurges(hangs=True, seconds=seconds):
                self._set("purge_hangs", value=True, seconds=seconds)
            case e.StuckPurges(seconds=seconds):
                issue = PodIssue(pod="orders-purge", reason="ImagePullBackOff", message="no such image")
                self._set("purge_issue", issue, seconds)
            case e.DamageCluster():
                if KEY in self.world.releases:
                    self.world.damage[KEY] = ("Service orders-master was deleted",)

    def _lose_node(self, node: str, seconds: float, *, removed: bool) -> None:
        self.world.silence(node)
        if removed:
            self._later(seconds / 2, lambda: self.world.remove_node(node))
        self._later(seconds, lambda: self.world.hear(node))

    def _recover_cluster(self) -> None:
        if self.world.sets.get(KEY):
            self.world.recover_nodes(KEY)

    # Kafka and Cassandra

    def _data(self, event: e.Event) -> None:
        world = self.world
        match event:
            case e.LoseKafka(seconds=seconds):
                self._set("kafka_down", value=True, seconds=seconds)
            case e.LoseCassandra(seconds=seconds):
                self._set("cassandra_down", value=True, seconds=seconds)
            case e.LoseAnswer(call=call, applied=applied):
                world.lose_answers.append((call, applied))

    def _log(self, event: e.Event) -> None:
        world = self.world
        match event:
            case e.ExpireRecords(records=records):
                self._expire(records)
            case e.KeepExpiring(records=records, backlog=backlog, seconds=seconds):
                world.ends[f"{TOPIC}/0"] += backlog
                self._keep_expiring(records, self._in(seconds))
            case e.HostileRecord(kind=kind):
                first = f"{TOPIC}/0"
                world.contents.failing.setdefault(first, {})[world.ends[first]] = kind
                world.ends[first] += 1 + AFTER_HOSTILE
            case e.GrowTopic():
                if len(world.ends) < MOST_PARTITIONS:
                    world.grow(TOPIC)
            case e.RecreateTopic():
                self._recreate()

    def _keep_expiring(self, records: int, until: datetime) -> None:
        self._expire(records, further=True)
        if self.world.now < until:
            self._later(LOOKS, lambda: self._keep_expiring(records, until))

    def _expire(self, records: int, *, further: bool = False) -> None:
        """Delete records beyond what is committed; `further`: and beyond what is deleted already."""
        world, key = self.world, f"{TOPIC}/0"
        row = next(iter(world.table.rows.values()), None)
        begins = dict.fromkeys(world.ends, 0) | world.lost.get("begins", {})
        committed = row.offsets.get(key, 0) if row is not None else 0
        if further:
            begins[key] = max(begins[key], min(max(begins[key], committed) + records, world.ends[key]))
        else:
            begins[key] = max(begins[key], committed + records)
        world.ends[key] = max(world.ends[key], begins[key])
        world.lost["begins"] = begins
        world.starts.update(begins)

    def _recreate(self) -> None:
        world = self.world
        world.recreate(TOPIC)
        world.contents.failing.clear()
        world.invariants.output.letters.clear()
        world.lost.clear()
        world.lost["topic_ids"] = {TOPIC: world.topic_ids[TOPIC]}

    # operators

    def _operator(self, event: e.Event) -> None:
        match event:
            case e.Stale(fact=fact, seconds=seconds, operator=number):
                self.operators[number].stale[fact] = self._in(seconds)
            case e.Unseen(fact=fact, seconds=seconds, operator=number):
                self.operators[number].unseen[fact] = self._in(seconds)
            case e.LoseRevisions():
                self.world.revisions.clear()
            case e.BusyFleet(seconds=seconds):
                self.world.busy_until = self._in(seconds)
            case e.LostTogether(seconds=seconds):
                self.world.lost_until = self._in(seconds)
            case e.Interrupt(operator=number):
                self.operators[number].interrupts.append(event)

    def _senses(self, event: e.Blindness | e.StepClock) -> None:
        if isinstance(event, e.StepClock):
            self._step(self.operators[event.operator], event.ahead)
            self._later(event.seconds, lambda: self._step(self.operators[event.operator], -event.ahead))
            return
        for operator in self.operators:
            operator.blind = KAFKA if event.dependency == "kafka" else CASSANDRA
        if event.hangs:
            for driver in self._living()[-1:]:
                driver.hangs = True
        self._later(event.seconds, self._see)

    @staticmethod
    def _step(operator: Operator, ahead: float) -> None:
        operator.stepped += ahead

    def _see(self) -> None:
        for operator in self.operators:
            operator.blind = frozenset()

    def _release(self, event: e.NewChart | e.OtherWords) -> None:
        """Replace every operator by one of another release."""
        if isinstance(event, e.OtherWords):
            other_words.write(self.world, KEY)
        else:
            # Where another spec is in effect, it gets the new chart.
            self.world.invariants.statuses.while_stalled.clear()
        for operator in self.operators:
            operator.end()
            operator.due = self.world.now
            if isinstance(event, e.NewChart):
                operator.chart = event.chart

    def _in(self, seconds: float) -> datetime:
        return self.world.now + timedelta(seconds=seconds)

    # users

    def _user(self, event: e.Event) -> None:  # noqa: C901, PLR0912 - a table
        world, pipeline = self.world, self.world.pipeline(KEY)
        if isinstance(event, e.Create):
            if pipeline is None:
                self._create()
            return
        if pipeline is None:
            return
        match event:
            case e.ChangeImage(number=number):
                world.change(KEY, job=_job(number))
            case e.Resize(workers=workers):
                world.change(KEY, cluster=_by_load(max(1, workers)) if self.setup.autoscales else {"workers": workers})
            case e.Suspend(value=value):
                world.change(KEY, suspend=value)
            case e.Pause(seconds=seconds):
                self._annotate(PAUSED_ANNOTATION, "true")
                self._later(seconds, self._continue)
            case e.BreakSpec(broken=broken):
                world.change(KEY, batchInterval="soon" if broken else "5s")
            case e.LoseTopic(missing=missing):
                kafka = {"bootstrapServers": "kafka:9092", "topics": ["orders", "missing"] if missing else ["orders"]}
                world.change(KEY, source={"kafka": kafka})
            case e.LoseReference(seconds=seconds):
                world.references.pop((KEY.namespace, CODE), None)
                self._later(seconds, lambda: world.references.update({(KEY.namespace, CODE): "code"}))
            case e.Delete():
                world.delete(KEY)
            case e.RemoveFinalizer():
                world.forget(KEY)
            case e.AcceptLoss(seconds=seconds):
                self._accept(event, self._in(seconds))
            case e.Rewind() | e.RewindToTime():
                self._rewind(event)
            case e.DeleteRewinds():
                for key in list(world.rewinds):
                    world.delete_rewind(key)
            case e.Retry(at=at):
                self._annotate(RETRY_ANNOTATION, str(at))
            case _:
                raise AssertionError(event)

    def _begin_again(self, topic: str) -> None:
        row = next(iter(self.world.table.rows.values()), None)
        self.world.invariants.output.forget(topic, row.write_timestamp if row is not None else 0)

    def _accept(self, event: e.AcceptLoss, until: datetime) -> None:
        if self._accepts(event):
            for operator in self.operators:
                operator.wake()
        elif self.world.now < until:
            self._later(LOOKS, lambda: self._accept(event, until))

    def _accepts(self, event: e.AcceptLoss) -> bool:
        """Accept the loss that the status names, if it names one."""
        pipeline = self.world.pipeline(KEY)
        loss = pipeline.status.loss if pipeline is not None else None
        if loss is None:
            return False
        opens = event.opens and loss.reason == Reason.OFFSET_OUT_OF_RANGE
        begins_again = loss.reason == Reason.TOPIC_RECREATED
        choice = " continue=earliest" if opens or begins_again else ""
        self._annotate(ACCEPT_LOSS_ANNOTATION, f"{loss.id} by=kim{choice}")
        if begins_again:
            self._begin_again(TOPIC)
        return True

    def _rewind(self, event: e.Rewind | e.RewindToTime) -> None:
        world = self.world
        if isinstance(event, e.RewindToTime):
            moment = (world.now - timedelta(seconds=event.ago)).replace(microsecond=0)
            target = Target(lambda: world.at(moment), event.delete_output, is_time=True)
            to: dict[str, Any] = {"timestamp": moment.isoformat()}
        else:
            offsets = self._back(event)
            target, to = Target(lambda: offsets, event.delete_output), {"offsets": offsets}
        self.rewinds += 1
        world.invariants.rows.targets.append(target)
        world.ask_for_rewind(f"back-{self.rewinds}", to, pipeline=KEY, deleteOutput=event.delete_output)

    def _back(self, event: e.Rewind) -> dict[str, int]:
        """Return the offsets that a rewind names."""
        row, first = next(iter(self.world.table.rows.values()), None), f"{TOPIC}/0"
        committed = row.offsets if row is not None else {}
        grown = self.world.invariants.output.grown.get(self.world.topic_ids.get(TOPIC, f"id-{TOPIC}"), {})
        begins = {key: self.world.starts.get(key, 0) for key in grown if key in committed} if event.from_growth else {}
        return {first: max(0, committed.get(first, 0) - event.records), **begins}

    def _annotate(self, name: str, value: str) -> None:
        metadata = self.world.objects[KEY]["metadata"]
        metadata["annotations"] = {**metadata.get("annotations", {}), name: value}
        self.world.touch(KEY)

    def _continue(self) -> None:
        """End a pause, whichever: also of a pipeline that was created again meanwhile."""
        if KEY in self.world.objects:
            annotations = self.world.objects[KEY]["metadata"].get("annotations", {})
            annotations.pop(PAUSED_ANNOTATION, None)
            self.world.touch(KEY)
            for operator in self.operators:
                operator.wake()

    def _create(self) -> None:
        self.created += 1
        restart: dict[str, Any] = {"stallTimeout": "20s", "maxAttempts": self.setup.max_attempts}
        if self.setup.waits:
            restart["onUnprovenDeath"] = "wait"
        if self.setup.stands_by:
            restart["standby"] = "Warm"
        if self.setup.stops_soon:
            restart["stopTimeout"] = "10s"
        changes: dict[str, Any] = {"onPoison": {"action": "deadLetter"}} if self.setup.sets_aside else {}
        if self.setup.autoscales:
            changes["cluster"] = _by_load(1)
        policy = "Retain" if self.setup.retain else "Delete"
        upgrade = {**UPGRADE, "rollback": "enabled" if self.setup.rolls_back else "disabled"}
        if self.setup.hands_over:
            upgrade["strategy"] = "Handoff"
        made = body(
            uid=f"uid-{self.created}", job=_job(1), restart=restart, deletionPolicy=policy, upgrade=upgrade, **changes
        )
        self.world.apply(made)


def _by_load(least: int) -> dict[str, Any]:
    return {"autoscale": {"minWorkers": least, "maxWorkers": least + 2, "targetTimeLag": "5s"}}


def _freeze(drivers: list[SimulatedDriver], *, frozen: bool) -> None:
    for driver in drivers:
        driver.frozen = frozen


def _mute(drivers: list[SimulatedDriver], *, is_mute: bool) -> None:
    for driver in drivers:
        driver.is_mute = is_mute


def _job(number: int) -> dict[str, Any]:
    return {
        "image": f"registry.example/job:{number}",
        "entrypoint": "orders.job:transform",
        "codeFrom": {"configMapName": "code"},
    }
