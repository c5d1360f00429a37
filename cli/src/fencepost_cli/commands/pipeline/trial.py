"""`fencepost trial create`, `list`, `show`, `watch`, `promote` and `delete`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeAlias

import typer

from fencepost.fence.snapshots import NAME
from fencepost_cli.commands.confirmation import ask
from fencepost_cli.commands.options import Named, of_object, of_trial, parse_moment, parse_span
from fencepost_cli.commands.output import note, print_json, print_line, working
from fencepost_cli.commands.pipeline.trial_output import print_trial, print_trials, trial_json
from fencepost_cli.errors import CliError, ExitCode
from fencepost_cli.ports import Json, Related
from fencepost_cli.trials import checked_spec, outcome, parse_bounds
from fencepost_operator.api import (
    ACCEPT_CODE_ANNOTATION,
    ObjectKey,
    Trial,
    TrialPhase,
    TrialPromotion,
    TrialSpec,
    read_trial,
)
from fencepost_operator.api.codec import encode
from fencepost_operator.api.managers import manager_of
from fencepost_operator.api.promotion import CHANGED_SINCE, promoting_patch
from fencepost_operator.api.quantities import duration_text
from fencepost_operator.text import single_line

POLL: Final = 1.0
"""Seconds between two looks at the status."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="New code on committed records beside the running pipeline, compared with the rows of its tables.",
)

_Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_Allow: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--allow",
        metavar="BOUNDS",
        help="Most rows that may differ for exit code 0: changed=5,missing=any,added=0. [default: those of"
        " promoteWhen, else none]",
        show_default=False,
    ),
]
_Timeout: TypeAlias = Annotated[int, typer.Option("--timeout", min=0, help="Seconds to follow it; 0 has no limit.")]


@dataclass(frozen=True, slots=True)
class NewCode:
    """The options that say what of spec.job is different."""

    image: Annotated[
        str | None, typer.Option("--image", help="The image: its code, its packages and its version of Spark.")
    ] = None
    code_from: Annotated[
        str | None, typer.Option("--code-from", metavar="CONFIGMAP", help="A ConfigMap with the Python modules.")
    ] = None
    entrypoint: Annotated[str | None, typer.Option("--entrypoint", metavar="MODULE:FUNCTION", help="The function.")] = (
        None
    )
    arg: Annotated[list[str] | None, typer.Option("--arg", help="An argument of the function; repeatable.")] = None
    no_args: Annotated[bool, typer.Option("--no-args", help="No arguments, where the pipeline has some.")] = False

    def field(self) -> Json:
        """Return spec.job. Raises CliError."""
        if self.arg and self.no_args:
            raise CliError("--arg and --no-args contradict each other", remedy="leave one of them out")
        code, args = {"configMapName": self.code_from}, [] if self.no_args else self.arg or None
        return {"image": self.image, "codeFrom": code, "entrypoint": self.entrypoint, "args": args}


@dataclass(frozen=True, slots=True)
class Start:
    """The options that say from where on it reads."""

    since: Annotated[
        str | None,
        typer.Option("--since", help="What was committed since 90m, 12h, 2d ago, or since a time. [default: 1h]"),
    ] = None
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", help="What was committed since a snapshot, by its name or id.")
    ] = None

    def field(self) -> Json:
        """Return spec.since. Raises CliError."""
        if self.since is not None and self.snapshot is not None:
            raise CliError("--since and --snapshot are two starts", remedy="leave one of them out")
        if self.snapshot is not None:
            return {"snapshot": self.snapshot}
        text = self.since or "1h"
        if text[-1:] in {"s", "m", "h", "d"}:
            return {"duration": _duration(text, "--since")}
        return {"timestamp": encode(parse_moment(text, "--since"))}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The options that say what is compared, and what the trial may use."""

    sink: Annotated[
        list[str] | None, typer.Option("--sink", help="A sink to compare; repeatable. [default: each Cassandra sink]")
    ] = None
    ignore_column: Annotated[
        list[str] | None, typer.Option("--ignore-column", help="A column that may differ; repeatable.")
    ] = None
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Put values into the samples: whoever may read trials reads them.")
    ] = False
    max_rows_per_second: Annotated[
        int | None, typer.Option("--max-rows-per-second", min=1, help="Most rows to read from Cassandra.")
    ] = None
    max_duration: Annotated[str | None, typer.Option("--max-duration", help="It ends after 30m, 2h. [default: 1h]")] = (
        None
    )
    cpu: Annotated[str | None, typer.Option("--cpu", help="CPUs of its pod. [default: a worker's]")] = None
    memory: Annotated[str | None, typer.Option("--memory", help="Memory of its pod. [default: a worker's]")] = None

    def compared(self) -> Json:
        """Return spec.compare."""
        return {
            "sinks": self.sink or None,
            "ignoreColumns": self.ignore_column or None,
            "showValues": self.show_values or None,
            "maxRowsPerSecond": self.max_rows_per_second,
        }

    def limits(self) -> Json:
        """Return spec.limits."""
        return {"maxDuration": self.max_duration, "cpu": self.cpu, "memory": self.memory}


@app.command()
@of_object
def create(
    target: Named,
    code: NewCode,
    start: Start,
    comparison: Comparison,
    *,
    promote_when: Annotated[
        str | None,
        typer.Option(
            "--promote-when",
            metavar="BOUNDS",
            help="The operator promotes the code if at most so many rows differ: changed=0,missing=0,added=0.",
        ),
    ] = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", help="The operator deletes it 12h, 7d after its end. [default: it is kept]")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the PipelineTrial. [default: made up]")] = None,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Follow it to the end.")] = False,
    timeout: _Timeout = 0,
    allow: _Allow = None,
) -> None:
    """Create a PipelineTrial of new code. Exit code 1 with --watch: more rows differ than may, or the trial failed."""
    if name is not None and not NAME.fullmatch(name):
        raise CliError(
            f"--name {name!r} is not a valid object name", remedy="use lower-case letters, digits and dashes"
        )
    allowed, bounds = _bounds(allow, "--allow"), _bounds(promote_when, "--promote-when")
    raw = {
        "pipeline": target.key.name,
        "job": code.field(),
        "since": start.field(),
        "compare": comparison.compared(),
        "limits": comparison.limits(),
        "promoteWhen": encode(bounds) if bounds is not None else None,
        "ttlAfterFinished": _duration(ttl, "--ttl") if ttl is not None else None,
    }
    if not any((code.image, code.code_from, code.entrypoint, code.arg, code.no_args)):
        raise CliError("nothing is new", remedy="add --image, --code-from, --entrypoint, --arg or --no-args")
    spec = checked_spec(raw)
    target.objects.pipeline(target.key)
    made = target.objects.create_trial(target.key, spec, name)
    if watch:
        _follow(target, made, timeout, allowed)
    elif target.is_json:
        print_json({"trial": str(made)})
    else:
        print_line(f"trial {made} is created")
        note(f"follow it with `fencepost trial watch {made}`")


@app.command("list")
@of_object
def list_trials(target: Named) -> None:
    """List the trials of a pipeline, the newest first."""
    found = [read_trial(body) for body in target.objects.related(target.key, Related.TRIALS)]
    found.sort(key=lambda trial: trial.created_at, reverse=True)
    if target.is_json:
        print_json({"pipeline": str(target.key), "trials": [trial_json(one, outcome(one)) for one in found]})
    else:
        print_trials(found, datetime.now(UTC))


@app.command()
@of_trial
def show(target: Named) -> None:
    """Show what a trial found: rows by what was found, samples, memory, CPU and catch-up rate."""
    _print(target, _read(target, target.key), None)


@app.command()
@of_trial
def watch(target: Named, *, timeout: _Timeout = 0, allow: _Allow = None) -> None:
    """Follow a trial to its end. Exit code 1: more rows differ than may, or the trial failed."""
    _follow(target, target.key, timeout, _bounds(allow, "--allow"))


@app.command()
@of_trial
def promote(target: Named, *, yes: _Yes = False) -> None:
    """Set spec.job of the pipeline to the code of a trial. Exit code 1: its repository has to, by the patch printed."""
    trial = _read(target, target.key)
    key = ObjectKey(trial.key.namespace, trial.pipeline)
    if trial.owner_uid:
        _accept(target, key, trial, yes=yes)
        return
    spec = _promotable(trial)
    body, patch = target.objects.pipeline(key), promoting_patch(spec)
    if body["metadata"].get("uid") != trial.status.pipeline_uid:
        raise CliError(f"{key} was created again since the trial began", remedy="create another trial")
    if _has(body, patch):
        _promoted(target, key, "has the code already")
        return
    if body["metadata"].get("generation") != trial.status.pipeline_generation:
        raise CliError(f"{key} has another spec now: {CHANGED_SINCE}", remedy="`fencepost trial create` starts one")
    if tool := manager_of(body["metadata"]):
        print_json(patch)
        note(f"{tool} writes {key} and would take the change back: commit this patch to its repository")
        raise typer.Exit(ExitCode.FOUND)
    if not yes:
        found = single_line(trial.status.message, limit=400)
        ask(f"Promote the code of {trial.key} to {key}? {found} A run with it starts after the batch in progress.")
    version = body["metadata"].get("resourceVersion")
    target.objects.merge(key, {"metadata": {"resourceVersion": version}, **patch})
    _promoted(target, key, "has the code of the trial")


def _accept(target: Named, key: ObjectKey, trial: Trial, *, yes: bool) -> None:
    """Let the pipeline's upgrade, which waits for the trial, run the code that the object has already.

    A user may accept code whose trial has no result. Raises CliError where the upgrade waits for another trial.
    """
    body = target.objects.pipeline(key)
    awaited = (body.get("status", {}).get("upgradeTrial") or {}).get("name")
    if trial.owner_uid != body["metadata"].get("uid") or awaited != trial.key.name:
        raise CliError(
            f"{key} does not wait for trial {trial.key}",
            remedy=f"`kubectl get spl -n {key.namespace} {key.name} -o jsonpath='{{.status.upgradeTrial}}'` has the one"
            " that it waits for",
        )
    if not yes:
        ask(f"Run the new code of {key}? {single_line(trial.status.message, limit=400)}")
    target.objects.merge(key, {"metadata": {"annotations": {ACCEPT_CODE_ANNOTATION: trial.key.name}}})
    _promoted(target, key, "may run the code of the trial")


@app.command()
@of_trial
def delete(target: Named, *, yes: _Yes = False) -> None:
    """Delete a trial with what it found; one that runs is stopped."""
    trial = _read(target, target.key)
    if not yes:
        ask(f"Delete trial {trial.key}, which is {single_line(trial.status.phase, limit=40)}?")
    target.objects.delete_trial(trial)
    if target.is_json:
        print_json({"trial": str(trial.key), "deleted": True})
    else:
        print_line(f"trial {trial.key} is deleted")


def _duration(text: str, option: str) -> str:
    """Return '2d' as Kubernetes writes it. Raises CliError."""
    return duration_text(parse_span(text, option).total_seconds())


def _bounds(text: str | None, option: str) -> TrialPromotion | None:
    return None if text is None else parse_bounds(text, option)


def _read(target: Named, key: ObjectKey) -> Trial:
    found = target.objects.trial(key)
    if found is None:
        raise CliError(f"trial {key} not found", remedy=f"see `kubectl get tr -n {key.namespace}`")
    return found


def _print(target: Named, trial: Trial, allowed: TrialPromotion | None) -> None:
    ended = outcome(trial, allowed)
    if target.is_json:
        print_json(trial_json(trial, ended))
    else:
        print_trial(trial, ended)


def _follow(target: Named, key: ObjectKey, timeout: int, allowed: TrialPromotion | None) -> None:
    """Print each step of a trial, and what it found. Raises CliError, and Exit where it did not pass."""
    deadline = time.monotonic() + timeout if timeout else None
    printed = ""
    with working(f"trial {key}") as progress:
        while (ended := outcome(trial := _read(target, key), allowed)).passed is None:
            said = f"{trial.status.phase}: {trial.status.message or 'no word yet'}"
            if said != printed and not target.is_json:
                print_line(said)
            printed = said
            if deadline is not None and time.monotonic() > deadline:
                raise CliError(
                    f"trial {key} is not over within {timeout} s: {said}",
                    remedy=f"it continues: `fencepost trial watch {key}`; `fencepost trial delete {key}` ends it",
                )
            progress.show(said)
            time.sleep(POLL)
    _print(target, trial, allowed)
    if not ended.passed:
        raise typer.Exit(ExitCode.FOUND)


def _promotable(trial: Trial) -> TrialSpec:
    """Return the spec of a trial that has compared rows. Raises CliError."""
    if isinstance(trial.spec, TrialSpec) and trial.status.phase == TrialPhase.COMPLETED:
        return trial.spec
    raise CliError(
        f"trial {trial.key} is {trial.status.phase}: it has no result by which to promote its code",
        remedy=f"`fencepost trial watch {trial.key}` follows it to its end",
    )


def _has(body: Json, patch: Json) -> bool:
    """Return whether the pipeline has each of the patch's fields of spec.job."""
    job: Any = body.get("spec", {}).get("job", {})
    return all(job.get(name) == value for name, value in patch["spec"]["job"].items())


def _promoted(target: Named, key: ObjectKey, what: str) -> None:
    if target.is_json:
        print_json({"trial": str(target.key), "pipeline": str(key), "promoted": True})
    else:
        print_line(f"{key} {what}")
