"""`fencepost explain`: a pipeline's conditions in words, with the remedy and the runbook of each that is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from fencepost_cli.commands.options import Named, of_object
from fencepost_cli.commands.output import moment, print_block, print_json, print_line
from fencepost_cli.errors import ExitCode
from fencepost_cli.explanation import FAILURE, Explained, explained
from fencepost_cli.readable import age
from fencepost_operator.api import read_status


@of_object
def explain(
    target: Named,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Explain what is right as well.")] = False,
) -> None:
    """Explain what a pipeline's conditions mean and what to do. Exit code 1: something is wrong."""
    body = target.objects.pipeline(target.key)
    found, status = explained(body), read_status(body.get("status"))
    if target.is_json:
        print_json(
            {"pipeline": str(target.key), "state": status.state.value, "explained": [_json(one) for one in found]}
        )
    else:
        print_line(f"{target.key}: {status.state.value}", style="bold")
        if status.message:
            print_line(status.message)
        if not found:
            print_line("The operator has not reported on it yet: see whether it runs, and watches this namespace.")
        for one in found:
            _print(one, in_full=everything or one.is_wrong or (one.kind == FAILURE and any(o.is_wrong for o in found)))
    if any(one.is_wrong for one in found):
        raise typer.Exit(ExitCode.FOUND)


def _print(one: Explained, *, in_full: bool) -> None:
    print_line()
    since = f", for {age(datetime.now(UTC) - one.since)}" if one.since and one.kind != FAILURE else ""
    when = f", {moment(one.since)}" if one.kind == FAILURE else ""
    style = "red" if one.is_wrong else ""
    print_line(f"{one.kind}{f' {one.status}' if one.status else ''}: {one.reason}{since}{when}", style=style)
    if one.message:
        print_block(f"{one.message}")
    if not in_full:
        return
    if one.guidance is not None:
        print_block(f"Means: {one.guidance.situation}.")
        print_block(f"Fencepost: {one.guidance.does}.")
    if one.remedy:
        print_block(f"You: {one.remedy}.")
    for number, step in enumerate(one.steps, start=1):
        print_block(f"{number}. {step.text}:")
        print_block(f"   $ {step.command}")
    if one.guidance is not None:
        print_block(f"Runbook: docs/runbooks/{one.reason}.md")


def _json(one: Explained) -> dict[str, Any]:
    return {
        "condition": one.kind,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
        "since": one.since,
        "wrong": one.is_wrong,
        "situation": one.guidance.situation if one.guidance else None,
        "fencepost": one.guidance.does if one.guidance else None,
        "remedy": one.remedy,
        "steps": [{"text": step.text, "command": step.command} for step in one.steps],
        "runbook": f"docs/runbooks/{one.reason}.md" if one.guidance else None,
    }
