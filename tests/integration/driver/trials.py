"""Trials in containers of the job image, as the operator's Jobs run them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fencepost.contract import Variable, Verdict
from fencepost.contract.trial import TRIAL_FILE, TrialReport, TrialRequest
from integration.driver.support import Pipeline, Run
from present import present


def tried(
    one: Pipeline, folder: Path, code: tuple[str, ...], start: dict[str, int], *, timeout: float = 240, **given: Any
) -> TrialReport:
    """Run a trial of other code on what is committed, in a container of its own; return its report."""
    run = _run(one, folder, code, start, **given)
    assert run.wait(timeout) == 0, run.log.read_text()[-6000:]
    return present(TrialReport.from_json(run.termination_log.read_text()))


def end_of_trial(one: Pipeline, folder: Path, code: tuple[str, ...], start: dict[str, int], **given: Any) -> Verdict:
    """Run a trial that fails, and return why."""
    run = _run(one, folder, code, start, **given)
    assert run.wait() != 0
    return present(Verdict.from_json(run.termination_log.read_text()))


def _run(one: Pipeline, folder: Path, code: tuple[str, ...], start: dict[str, int], **given: Any) -> Run:
    row = one.row()
    config = replace(one.config, args=code, spark_master="local[2]", epoch=0)
    request = TrialRequest(
        start=start, until=row.offsets, written_after=0, written_until=row.clock, sinks=("rows",),
        progress_key=f"{config.pipeline}#trial-x", **given,
    )  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(config.to_json())
    (folder / TRIAL_FILE).write_text(request.to_json())
    folder.chmod(0o755)
    one.volumes["/etc/trial"] = folder
    return one.start(config, "fencepost", "trial", **{Variable.CONFIG_FILE: "/etc/trial/config.json"})
