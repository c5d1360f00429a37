"""What can happen in a history: one frozen dataclass per kind, each at a moment in seconds since the start.

A history is data. It has no chance left in it, so an event that is taken out moves no other one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Fact: TypeAlias = Literal["references", "release", "cluster", "objects", "runs", "node", "fence", "source", "revision"]
"""What an observation asks for, by the name under which `fakes.ports` reads it."""
Call: TypeAlias = Literal[
    "pipeline", "runs", "fence", "write_status", "set_finalizer", "create", "take_over", "start", "stop", "install",
    "uninstall", "prune", "delete_fence", "accept_loss", "take_snapshot",
    "rewinds", "rewind", "write_rewind", "mark_rewind", "start_purge",
]  # fmt: skip
Dependency: TypeAlias = Literal["kafka", "cassandra"]
Part: TypeAlias = Literal["driver", "master", "worker"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens `at` a moment."""

    at: float


# the driver


@dataclass(frozen=True, slots=True)
class Kill(Event):
    """The newest driver's process ends; `written` says that its batch is written by then, and not committed."""

    code: int = 137
    written: bool = False


@dataclass(frozen=True, slots=True)
class KillAtClaim(Event):
    """The next driver that claims its epoch ends then, before its first batch."""

    code: int = 137


@dataclass(frozen=True, slots=True)
class Freeze(Event):
    """Every living driver does nothing for some time, and continues where it was."""

    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Hang(Event):
    """The newest driver's batch neither ends nor reports progress."""


@dataclass(frozen=True, slots=True)
class Mute(Event):
    """No heartbeat or report of a driver that lives arrives for some time, while it works."""

    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class SlowBatches(Event):
    """Batches of drivers that live, or start within `lasts` seconds, take `seconds`."""

    seconds: float = 30.0
    lasts: float = 60.0


@dataclass(frozen=True, slots=True)
class TooLargeBatches(Event):
    """Batches of more than `fits` records end drivers that live, or start within `lasts` seconds."""

    fits: int = 20
    lasts: float = 60.0


@dataclass(frozen=True, slots=True)
class FailingCode(Event):
    """Drivers that start within `lasts` seconds end with `code`."""

    code: int = 1
    lasts: float = 60.0


@dataclass(frozen=True, slots=True)
class BreakImage(Event):
    """Drivers of an image end with `code`, from now on; `lasts` 0 is until the end of the history.

    `upgrades`: the spec names that image from now on.
    """

    number: int = 2
    code: int = 51
    lasts: float = 0.0
    upgrades: bool = False


# pods, Jobs and nodes


@dataclass(frozen=True, slots=True)
class LoseNode(Event):
    """The node of a part is silent for some time; `removed`: its Node object goes at half of that time."""

    part: Part = "driver"
    seconds: float = 120.0
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Drain(Event):
    """The node of the master is drained, with all `workers` or none, and takes pods again after some time.

    A master with a volume starts nowhere else, and evicted workers find no room elsewhere; without a volume another
    master follows, which knows no driver.
    """

    workers: bool = False
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class DeletePod(Event):
    """A user deletes the newest driver's pod."""

    force: bool = False


@dataclass(frozen=True, slots=True)
class DeleteJob(Event):
    """A user deletes the newest Job."""

    cascade: Literal["foreground", "background", "orphan"] = "foreground"


@dataclass(frozen=True, slots=True)
class StartTwin(Event):
    """The Job controller starts a second pod for the newest Job."""


@dataclass(frozen=True, slots=True)
class NoPods(Event):
    """No pod that is created within that time starts."""

    reason: str = "Unschedulable"
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class StuckPurges(Event):
    """Jobs that count or delete output do not work: their pods do not start, or `hangs`: they say nothing."""

    hangs: bool = False
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class DamageCluster(Event):
    """A user deletes or changes an object of the Spark cluster."""


@dataclass(frozen=True, slots=True)
class FailInstalls(Event):
    """Installs of that time are refused, or leave the release pending."""

    how: Literal["refused", "pending"] = "refused"
    seconds: float = 15.0


# Kafka and Cassandra


@dataclass(frozen=True, slots=True)
class LoseKafka(Event):
    """No broker answers."""

    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class ExpireRecords(Event):
    """Retention deletes records beyond the committed offset of the first partition."""

    records: int = 20


@dataclass(frozen=True, slots=True)
class KeepExpiring(Event):
    """A backlog comes to the first partition, and for some time retention deletes records beyond what is committed."""

    records: int = 10
    backlog: int = 1000
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class HostileRecord(Event):
    """A record comes that no batch can write, and good ones after it; see `simulation.content` for the kinds."""

    kind: str = "loss"


@dataclass(frozen=True, slots=True)
class GrowTopic(Event):
    """The topic gets another partition, unless it has four."""


@dataclass(frozen=True, slots=True)
class RecreateTopic(Event):
    """A user deletes the topic and creates it again."""


@dataclass(frozen=True, slots=True)
class LoseCassandra(Event):
    """No node answers."""

    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class LoseAnswer(Event):
    """The next request of a kind to the fence times out, whether or not it is applied."""

    call: Literal["read", "insert", "swap"] = "swap"
    applied: bool = True


# the API server and the operators


@dataclass(frozen=True, slots=True)
class Stale(Event):
    """A cache shows one operator a fact as it is now, for some time."""

    fact: Fact = "runs"
    seconds: float = 10.0
    operator: int = 0


@dataclass(frozen=True, slots=True)
class Unseen(Event):
    """One operator gets no answer about a fact."""

    fact: Fact = "runs"
    seconds: float = 10.0
    operator: int = 0


@dataclass(frozen=True, slots=True)
class Blindness(Event):
    """Only the operators get no answer from Kafka or Cassandra; `hangs`: the newest driver hangs.

    It lasts beyond the time in which other events happen.
    """

    dependency: Dependency = "kafka"
    hangs: bool = True
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class StepClock(Event):
    """The wall clock of one operator is `ahead` by that many seconds more, for some time."""

    ahead: float = 600.0
    seconds: float = 20.0
    operator: int = 0


@dataclass(frozen=True, slots=True)
class Interrupt(Event):
    """What happens to one operator at its next call of a kind, before its effect or after it.

    crash: it dies and starts again.  freeze: it stands still for some time and continues.  lost: no answer, and no
    effect.  late: no answer, and the effect comes after some time.
    """

    call: Call = "start"
    when: Literal["before", "after"] = "before"
    how: Literal["crash", "freeze", "lost", "late"] = "crash"
    seconds: float = 10.0
    operator: int = 0


@dataclass(frozen=True, slots=True)
class LoseRevisions(Event):
    """A user deletes every ControllerRevision of the pipeline."""


@dataclass(frozen=True, slots=True)
class BusyFleet(Event):
    """So many other pipelines are restarted by plan that no permit is left."""

    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class LostTogether(Event):
    """So many other drivers lose their heartbeats that no permit is left to replace one."""

    seconds: float = 30.0


# releases of the operator


@dataclass(frozen=True, slots=True)
class NewChart(Event):
    """Every operator is replaced by one of a release with another chart of the Spark cluster."""

    chart: str = "b"


@dataclass(frozen=True, slots=True)
class OtherWords(Event):
    """Every operator is replaced, and another release has stored words in the status that this one does not know."""


# users


@dataclass(frozen=True, slots=True)
class ChangeImage(Event):
    """Another image."""

    number: int = 2


@dataclass(frozen=True, slots=True)
class Resize(Event):
    """Another number of workers."""

    workers: int = 2


@dataclass(frozen=True, slots=True)
class Suspend(Event):
    """Suspend, or resume."""

    value: bool = True


@dataclass(frozen=True, slots=True)
class Pause(Event):
    """Pause reconciliation by the annotation, and remove that after some time."""

    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class BreakSpec(Event):
    """An invalid field, or a valid one again."""

    broken: bool = True


@dataclass(frozen=True, slots=True)
class LoseTopic(Event):
    """The spec names a topic that does not exist, or the right one again."""

    missing: bool = True


@dataclass(frozen=True, slots=True)
class LoseReference(Event):
    """The ConfigMap with the code is not there for some time."""

    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Delete(Event):
    """Delete the pipeline."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer(Event):
    """Delete the pipeline and take its finalizer off by hand."""


@dataclass(frozen=True, slots=True)
class Create(Event):
    """Create the pipeline again if it is gone."""


@dataclass(frozen=True, slots=True)
class AcceptLoss(Event):
    """Accept the loss that the status names, or comes to name within `seconds`.

    `opens`: whatever retention has deleted when the next run claims, not only what the status names.
    """

    opens: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Rewind(Event):
    """Ask to go back by some records of the first partition.

    `from_growth`: and to the beginning of each partition that the topic got.
    """

    records: int = 50
    delete_output: bool = False
    from_growth: bool = False


@dataclass(frozen=True, slots=True)
class RewindToTime(Event):
    """Ask to go back to what was there `ago` seconds before."""

    ago: float = 20.0
    delete_output: bool = False


@dataclass(frozen=True, slots=True)
class DeleteRewinds(Event):
    """Delete every rewind."""


@dataclass(frozen=True, slots=True)
class Retry(Event):
    """Ask for another attempt."""
