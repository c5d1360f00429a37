"""Watches beside the loop: they end a run whose batch hangs, where the loop itself would wait forever."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fencepost.contract import Reason
from fencepost.errors import DependencyDown, NoExecutors
from fencepost.fence import Fenced, FenceUnavailable

if TYPE_CHECKING:
    from fencepost.driver.loop import InProgress
    from fencepost.fence import FenceRow

log = logging.getLogger(__name__)

FENCE_CHECK: Final = 5.0
"""Seconds between two looks at the fence."""
FIRST_EXECUTOR_LIMIT: Final = 120.0
"""Seconds that a run waits for its first executor: before the claim nothing is in progress."""
FIRST_EXECUTOR_CHECK: Final = 0.1
"""Seconds between two looks for the first executor, for which the claim waits."""
EXECUTOR_CHECK: Final = 1.0
"""Seconds between two looks at the executors after that."""
PROGRESS_INTERVAL: Final = 5.0
"""Seconds that a batch takes before its progress is reported, and between two reports."""
SIGN_INTERVAL: Final = 15.0
"""Most seconds between two signs of life; four fit into the stall timeout."""

IDLE: Final = 2
"""Intervals after a look that found nothing to read, for which a run counts as idle: an answer of Kafka takes time."""
AT_ONCE: Final = 8
"""Heartbeats under way: more than there are in the time of a request that gets no answer."""

COLLECT_INTERVAL: Final = 60.0
"""Seconds between two collections of a stateful pipeline's files."""
FIRST_COLLECTION: Final = 10.0
"""Seconds between two looks for the claim, after which the first one is."""

RESOURCES_INTERVAL: Final = 60.0
"""Seconds between two log lines about the resources of the driver's JVM."""

End = Callable[[BaseException], object]
"""Ends the run for an error; a watch says nothing after it."""


def start(name: str, watch: Callable[[], None]) -> None:
    """Run a watch in a thread of its own, which does not keep the process alive."""
    threading.Thread(target=watch, name=name, daemon=True).start()


def watch_fence(check: Callable[[], object], *, end: End, sleep: Callable[[float], object] = time.sleep) -> None:
    """End the run with what `check` raises, Fenced or FenceMissing, once this driver holds the fence no more.

    An idle driver commits nothing that could be refused; one that was frozen wakes among executors that are gone, and
    its batch might hang.  The run does not end when the database does not answer: the next commit retries.
    """
    while True:
        sleep(FENCE_CHECK)
        try:
            check()
        except FenceUnavailable:
            continue
        except Exception as error:  # noqa: BLE001 - whatever it was, the process ends with its verdict
            end(error)
            return


def watch_executors(
    count: Callable[[], int],
    *,
    arrived: Callable[[], object],
    end: End,
    limit: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """End the run with NoExecutors when it has had no executor for `limit` seconds: its job would wait forever.

    `count` gives the executors that are there; when it raises, Spark's JVM is gone and the run ends with
    DependencyDown.  `arrived` is called once, for the first one.
    """
    seen = False
    lonely_since: float | None = now()
    while True:
        sleep(EXECUTOR_CHECK if seen else FIRST_EXECUTOR_CHECK)
        try:
            there = count()
        except Exception as error:  # noqa: BLE001 - Py4J raises many kinds for a JVM that is gone
            gone = DependencyDown(f"the Spark application is gone: {error}", reason=Reason.SPARK_UNREACHABLE)
            gone.__cause__ = error
            end(gone)
            return
        if there:
            if not seen:
                arrived()
            seen, lonely_since = True, None
        elif lonely_since is None:
            lonely_since = now()
        elif now() - lonely_since > (limit if seen else FIRST_EXECUTOR_LIMIT):
            end(NoExecutors(f"no executor for {now() - lonely_since:.0f} s"))
            return


def watch_progress(
    in_progress: Callable[[], InProgress | None],
    done: Callable[[], int],
    *,
    report: Callable[[InProgress, int], object],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Report how far a long batch is, whenever it is further: it shows the operator that a slow batch is not hung.

    A report that fails is left out: the next one says as much, and nothing depends on a single one.
    """
    last: tuple[int, int] | None = None
    while True:
        sleep(PROGRESS_INTERVAL)
        batch = in_progress()
        if batch is None or now() - batch.since < PROGRESS_INTERVAL:
            continue
        try:
            reached = batch.row.version, done()
            if reached != last:
                report(batch, reached[1])
        except Exception as error:  # noqa: BLE001 - Spark's JVM or the database: others watch those
            log.warning("the progress of the batch is not reported: %s", error)
            continue
        last = reached


def watch_life(
    life: Callable[[], tuple[FenceRow, int] | None],
    *,
    sign: Callable[[FenceRow], object],
    stall_timeout: float,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Give a sign of life at intervals while the loop commits, or finds nothing to read: none for a loop that hangs.

    Where only the driver may connect to Kafka, the operator distinguishes an idle run from a hung one by it.
    """
    last: tuple[int, int] | None = None
    while True:
        sleep(min(SIGN_INTERVAL, stall_timeout / 4))
        found = life()
        if found is None or (found[0].version, found[1]) == last:
            continue
        try:
            sign(found[0])
        except Exception as error:  # noqa: BLE001 - the database: others watch that
            log.warning("no sign of life is written: %s", error)
            continue
        last = found[0].version, found[1]


def watch_heartbeat(
    life: Callable[[], tuple[FenceRow, int] | None],
    *,
    beat: Callable[[FenceRow], object],
    interval: float,
    idle_interval: float,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Give a heartbeat at intervals in which the run has not changed its row: a change says as much.

    Also when the run has claimed, and at the idle interval whatever it does: a report expires, and a run without any is
    not judged by its heartbeats.  A run that has just found nothing to read gives no more than that.  The idle interval
    is shorter than the operator's patience, so whoever is the first to see a record, no run that lives is missed.

    Only the process counts: a loop that hangs has a heartbeat, and so has one inside a long batch.  `beat` returns at
    once: a request that a node does not answer must not hold the next one up.
    """
    version: int | None = None
    looks = idle = since = 0
    while True:
        sleep(interval)
        since += 1
        found = life()
        if found is None:
            version = None
            continue
        held, looked = found
        stays = held.version == version
        if not stays:
            idle = 0
        elif looked != looks:
            idle = IDLE
        else:
            idle -= 1
        if version is None or (stays and idle <= 0) or since * interval >= idle_interval:
            beat(held)
            since = 0
        version, looks = held.version, looked


def beside(
    act: Callable[[FenceRow], object], start: Callable[[Callable[[], None]], object]
) -> Callable[[FenceRow], None]:
    """Return what does `act` in threads that `start` begins, AT_ONCE of them at most; an error is left out."""
    free = threading.Semaphore(AT_ONCE)

    def begin(row: FenceRow) -> None:
        def run() -> None:
            try:
                act(row)
            except Exception as error:  # noqa: BLE001 - the database: others watch that
                log.debug("no heartbeat is written: %s", error)
            finally:
                free.release()

        if free.acquire(blocking=False):
            start(run)

    return begin


def watch_log(
    read: Callable[[], list[str]],
    *,
    show: Callable[[list[str]], object],
    judge: Callable[[list[str]], BaseException | None],
    end: End,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Show what the JVM logs, and end the run when `judge` says so. Returns when `read` raises."""
    while True:
        sleep(EXECUTOR_CHECK)
        try:
            lines = read()
        except Exception as error:  # noqa: BLE001 - Py4J raises many kinds for a JVM that is gone
            log.warning("the JVM's log cannot be read: %s", error)
            return
        show(lines)
        if (found := judge(lines)) is not None:
            end(found)
            return


def watch_files(collect: Callable[[], bool], *, end: End, sleep: Callable[[float], object] = time.sleep) -> None:
    """Delete the files of the state that nothing reaches, at intervals; after a failure, at the next one.

    `collect` returns whether the run has claimed its epoch.  The first pass is soon after that: runs may be short.
    """
    is_claimed = False
    while True:
        sleep(COLLECT_INTERVAL if is_claimed else FIRST_COLLECTION)
        try:
            is_claimed = collect()
        except Fenced as error:
            end(error)
            return
        except Exception as error:  # noqa: BLE001 - the database: others watch that
            log.warning("unreachable files of the state are not deleted: %s", error)


def watch_resources(measure: Callable[[], dict[str, int]], *, sleep: Callable[[float], object] = time.sleep) -> None:
    """Log what the driver's JVM uses once per minute, so that a leak shows before memory runs out.

    Ends when `measure` raises: then the JVM is gone, and another watch ends the run.
    """
    while True:
        sleep(RESOURCES_INTERVAL)
        try:
            log.info("resources", extra={"fields": measure()})
        except Exception as error:  # noqa: BLE001 - Py4J raises many kinds for a JVM that is gone
            log.warning("the JVM's resources cannot be read: %s", error)
            return
