"""`fencepost logs`: what the driver of the current or the last run says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from fencepost_cli.commands.options import Named, of_object
from fencepost_cli.commands.output import note, print_block, print_line
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Json, Related
from fencepost_operator.api import ObjectKey, read_status
from fencepost_operator.desired import labels
from fencepost_operator.text import single_line

_LONGEST: Final = 4000
_FIRST: Final = ("time", "level", "logger", "message", "pipeline")
"""Keys of a line that are not repeated after the message."""


@of_object
def logs(
    target: Named,
    *,
    epoch: Annotated[int | None, typer.Option("--epoch", min=0, help="Of which run. [default: the newest]")] = None,
    tail: Annotated[int, typer.Option("--tail", min=0, help="How many lines; 0 shows all.")] = 200,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what comes, until the driver ends.")] = False,
) -> None:
    """Show the log of the current or the last run's driver; without its pod, the lines that outlived it."""
    pod = _pod(target, epoch)
    if pod is None:
        _print_kept(target, epoch)
        return
    shown = _Lines(_as_it_is if target.is_json else _print_readable)
    target.objects.container_log(pod, shown.add, container=labels.DRIVER, tail=tail or None, follow=follow)
    shown.end()


@dataclass(slots=True)
class _Lines:
    """Puts pieces of text together to lines."""

    show: Callable[[str], None]
    _rest: str = ""

    def add(self, text: str) -> None:
        """Show the lines that are complete."""
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self.show(line)

    def end(self) -> None:
        """Show what is left."""
        if self._rest:
            self.show(self._rest)


def _pod(target: Named, epoch: int | None) -> ObjectKey | None:
    """Return the newest driver's pod, or that of an epoch; None when it is gone."""
    drivers = [
        (int(marks[labels.EPOCH]), str(body["metadata"].get("creationTimestamp")), body["metadata"]["name"])
        for body in target.objects.related(target.key, Related.PODS)
        if (marks := _labels(body)).get(labels.COMPONENT) == labels.DRIVER and marks.get(labels.EPOCH, "").isdecimal()
    ]
    wanted = [driver for driver in drivers if epoch in {None, driver[0]}]
    return ObjectKey(target.key.namespace, max(wanted)[2]) if wanted else None


def _labels(body: Json) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}


def _print_kept(target: Named, epoch: int | None) -> None:
    failure = read_status(target.objects.pipeline(target.key).get("status")).failure
    if failure is None or not failure.log or epoch not in {None, failure.epoch}:
        of = f"epoch {epoch}" if epoch is not None else "its runs"
        raise CliError(
            f"{target.key} has no driver's pod of {of}, and no lines of its log were kept",
            remedy=f"see `fencepost explain {target.key}`",
        )
    note(f"the pod is gone; these are the last lines of the run of epoch {failure.epoch}, which failed")
    for line in failure.log:
        if target.is_json:
            _as_it_is(line)
        else:
            _print_readable(line)


def _as_it_is(line: str) -> None:
    """Print a line for a script: as the driver wrote it, without what a terminal would take for a command."""
    sys.stdout.write("".join(mark if mark.isprintable() or mark == "\t" else "\ufffd" for mark in line) + "\n")


def _print_readable(line: str) -> None:
    """Print a line for people: of JSON the time, the level, the message and the other fields."""
    try:
        read: Any = json.loads(line)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict) or not isinstance(read.get("message"), str):
        print_line(line)
        return
    level = str(read.get("level", ""))
    fields = " ".join(f"{name}={_value(value)}" for name, value in read.items() if name not in {*_FIRST, "exception"})
    style = {"error": "red", "critical": "red", "warning": "yellow"}.get(level, "")
    print_line(single_line(f"{read.get('time', '')} {level} {read['message']} {fields}", limit=_LONGEST), style=style)
    print_block(str(read.get("exception") or ""))


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
