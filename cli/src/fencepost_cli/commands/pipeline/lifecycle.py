"""`fencepost restart`, `suspend`, `resume` and `failover`: what a pipeline should do now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeAlias

import typer

from fencepost_cli.commands.confirmation import ask
from fencepost_cli.commands.options import Named, of_object
from fencepost_cli.commands.output import note, print_json, print_line, working
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Json
from fencepost_cli.readable import timestamp
from fencepost_operator.api import (
    FAIL_OVER_ANNOTATION,
    PAUSED_ANNOTATION,
    RETRY_ANNOTATION,
    ObjectKey,
    Reason,
    State,
    Status,
    asks_for_pause,
    condition_of,
    read_status,
)

MOVE_BEGINS: Final = 30
"""Seconds in which the operator stops the run for a move, or says why not."""
POLL: Final = 1.0
"""Seconds between two looks at the status."""
_GITOPS: Final = ("argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/")
"""Prefixes of labels and annotations on what Argo CD and Flux apply."""

_Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_Wait: TypeAlias = Annotated[int, typer.Option("--wait", min=0, metavar="SECONDS", help="For the pipeline to do it.")]


@of_object
def suspend(target: Named, *, yes: _Yes = False, wait: _Wait = 0) -> None:
    """Stop a pipeline after its batch is committed, and remove its Spark cluster (spec.suspend)."""
    body = target.objects.pipeline(target.key)
    if not yes and not _is_suspended(body):
        ask(f"Suspend {target.key}? It commits the batch in progress, and reads nothing until it is resumed.")
    _set_suspend(target, body, to=True)
    _end(target, "suspend", wait, lambda status: status.state is State.SUSPENDED)


@of_object
def resume(target: Named, *, wait: _Wait = 0) -> None:
    """Let a suspended pipeline continue from its last commit (spec.suspend)."""
    _set_suspend(target, target.objects.pipeline(target.key), to=False)
    _end(target, "resume", wait, _streams)


@of_object
def restart(target: Named, *, yes: _Yes = False, wait: _Wait = 0) -> None:
    """Start a new run: at once where one waits or has failed for good, after its batch where one streams."""
    body = target.objects.pipeline(target.key)
    status = read_status(body.get("status"))
    _refuse_what_rests(target, body)
    run = status.run
    pod = run.pod_name if run is not None and run.is_active else None
    if not yes:
        ask(
            f"Restart {target.key}? " + ("Its driver commits its batch and ends first." if pod else "A run starts now.")
        )
    annotations = {RETRY_ANNOTATION: f"restart {timestamp(datetime.now(UTC))}"}
    target.objects.merge(target.key, {"metadata": {"annotations": annotations}})
    if pod:
        target.objects.end_run(ObjectKey(target.key.namespace, pod))
    before = status.epoch or 0
    _end(target, "restart", wait, lambda now: (now.epoch or 0) > before and _streams(now))


@of_object
def failover(
    target: Named,
    *,
    to: Annotated[
        str,
        typer.Option("--to", metavar="CLUSTER_UID", help="The uid of the cluster that waits, as its status has it."),
    ],
    yes: _Yes = False,
    wait: _Wait = 0,
) -> None:
    """Move a pipeline to the Kubernetes cluster that waits for it, after its batch is committed (spec.failover)."""
    body = target.objects.pipeline(target.key)
    status = read_status(body.get("status"))
    if not isinstance(body.get("spec"), Mapping) or "failover" not in body["spec"]:
        remedy = "set it in both clusters, see docs/operations.md#a-second-kubernetes-cluster"
        raise CliError(f"{target.key} has no spec.failover, so no other cluster waits for it", remedy=remedy)
    if status.state is State.STANDBY or not status.epoch:
        remedy = "run the command in the cluster that runs it"
        raise CliError(f"{target.key} is {status.state.value} in this cluster: {status.message}", remedy=remedy)
    _refuse_what_rests(target, body)
    if not yes:
        ask(f"Move {target.key} to cluster {to}? It commits the batch in progress, and continues there.")
    target.objects.merge(target.key, {"metadata": {"annotations": {FAIL_OVER_ANNOTATION: f"{to}@{status.epoch}"}}})
    known, late = condition_of(status.conditions, Reason.FAILOVER_BLOCKED), time.monotonic() + MOVE_BEGINS - 2 * POLL

    def begins(now: Status) -> bool:
        """Return whether the move begins. What the condition said before the request may be over."""
        is_news = condition_of(now.conditions, Reason.FAILOVER_BLOCKED) != known or time.monotonic() >= late
        return _is_moving(now, to, status.epoch or 0, is_news=is_news)

    _wait(target, "failover", max(wait, MOVE_BEGINS), begins)
    _end(target, "failover", wait, _waits_for_another)


def _is_moving(status: Status, to: str, epoch: int, *, is_news: bool) -> bool:
    """Return whether the move has begun. Raises CliError with the operator's reason where it does not."""
    if status.state is State.STANDBY:
        return True
    blocked = condition_of(status.conditions, Reason.FAILOVER_BLOCKED)
    if blocked is not None and is_news and f"cluster {to} from epoch {epoch} " in blocked.message:
        remedy = "the request stays valid until the run ends: the move begins as soon as that cluster is ready"
        raise CliError(blocked.message, remedy=remedy)
    if (status.epoch or 0) > epoch:
        raise CliError(f"the run of epoch {epoch} was replaced before the move began", remedy="run the command again")
    return False


def _refuse_what_rests(target: Named, body: Json) -> None:
    """Raise CliError where the operator would do nothing."""
    if _is_suspended(body):
        raise CliError(f"{target.key} is suspended", remedy=f"run `fencepost resume {target.key}`")
    if asks_for_pause((body["metadata"].get("annotations") or {}).get(PAUSED_ANNOTATION)):
        raise CliError(
            f"{target.key} is paused, so the operator does nothing with it",
            remedy=f"run kubectl annotate spl -n {target.key.namespace} {target.key.name} {PAUSED_ANNOTATION}- first",
        )


def _waits_for_another(status: Status) -> bool:
    ready = condition_of(status.conditions, "Ready")
    return ready is not None and ready.reason == Reason.FAILOVER_STANDBY


def _set_suspend(target: Named, body: Json, *, to: bool) -> None:
    """Change spec.suspend. Notes who may change it back."""
    if _is_suspended(body) is not to:
        target.objects.merge(target.key, {"spec": {"suspend": to}})
    metadata = body["metadata"]
    marks = [*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})]
    if any(mark.startswith(_GITOPS) for mark in marks):
        note("the pipeline is applied by Argo CD or Flux, which may change spec.suspend back: change it in Git as well")


def _is_suspended(body: Json) -> bool:
    spec = body.get("spec")
    return isinstance(spec, Mapping) and spec.get("suspend") is True


def _streams(status: Status) -> bool:
    streaming = condition_of(status.conditions, "Streaming")
    return streaming is not None and streaming.status == "True"


def _end(target: Named, verb: str, wait: int, is_done: Callable[[Status], bool]) -> None:
    """Wait where that is asked for, and print how far it is. Raises CliError where it takes longer."""
    status = _wait(target, verb, wait, is_done) if wait else None
    if target.is_json:
        done: dict[str, Any] = {"pipeline": str(target.key), "requested": verb, "state": status and status.state.value}
        print_json(done)
        return
    print_line(f"{target.key}: {verb} is requested" if status is None else f"{target.key}: {status.state.value}")
    if status is None:
        note(f"see `kubectl get spl -n {target.key.namespace} {target.key.name} -w`")


def _wait(target: Named, verb: str, seconds: int, is_done: Callable[[Status], bool]) -> Status:
    deadline = time.monotonic() + seconds
    with working(f"{verb} {target.key}") as progress:
        while True:
            body = target.objects.pipeline(target.key)
            status = read_status(body.get("status"))
            if status.observed_generation >= body["metadata"].get("generation", 0) and is_done(status):
                return status
            if time.monotonic() > deadline:
                raise CliError(
                    f"{target.key} is {status.state.value} after {seconds} s: {status.message}",
                    remedy=f"it continues: `fencepost explain {target.key}`",
                )
            progress.show(f"{status.state.value} {status.message}")
            time.sleep(POLL)
