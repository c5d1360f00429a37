"""Questions about the state of a pipeline: served from Cassandra by this process, read by one with Spark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from fencepost.contract.codec import ContractError
from fencepost.fence import FenceError
from fencepost.state.chunks import ChunkStore
from fencepost.state.collector import GRACE
from fencepost.state.errors import CheckpointDamaged, CheckpointError, ChunkMissing
from fencepost.state.progress import Committed
from fencepost.state.questions import READER, Answer, OperatorsQuestion, Request, RowsQuestion
from fencepost.state.reading import readable
from fencepost_cli.errors import CliError
from fencepost_cli.stores.cassandra import PATIENCE
from fencepost_cli.stores.processes.spark import NO_ANSWER, check_installed, variables


def ask_state(
    committed: Committed, chunks: ChunkStore, question: OperatorsQuestion | RowsQuestion
) -> tuple[Answer, Mapping[int, int]]:
    """Return the answer of Spark's state reader, which is not a refusal, and the bytes of each operator's files.

    Raises CliError.
    """
    check_installed("the state is read")
    failures: list[Exception] = []
    began = time.monotonic()
    # A JVM that is interrupted may still write.
    with tempfile.TemporaryDirectory(prefix="fencepost-state-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        try:
            with readable(
                committed, chunks, folder=scratch / "files", patience=PATIENCE, failed=failures.append
            ) as served:
                request = Request(
                    location=served.location,
                    settings=served.settings,
                    scratch=folder,
                    operators=question if isinstance(question, OperatorsQuestion) else None,
                    rows=question if isinstance(question, RowsQuestion) else None,
                )
                answer = _answer(request, scratch)
        except (CheckpointError, FenceError) as error:
            raise _unreadable(error, time.monotonic() - began) from error
    if answer.refusal is None:
        return answer, served.sizes
    if failures:
        raise _unreadable(failures[0], time.monotonic() - began)
    raise CliError(answer.refusal.message, remedy=answer.refusal.remedy)


def _answer(request: Request, scratch: Path) -> Answer:
    """Return what the reader answers, also a refusal. Raises CliError where it ends without an answer."""
    errors = scratch / "errors.txt"
    with errors.open("wb") as stderr:
        # -P: no module of the folder in which the command is called.
        ended = subprocess.run(
            [sys.executable, "-P", "-m", READER],
            input=request.to_json(),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=variables(),
            check=False,
        )
    try:
        return Answer.from_json(ended.stdout)
    except ContractError as error:
        lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        raise CliError(
            f"the process that reads the state ended with {ended.returncode}: {last}",
            remedy=NO_ANSWER,
        ) from error


def _unreadable(error: Exception, seconds: float) -> CliError:
    """Return the error for a file that could not be read; `seconds` is how long the read has taken."""
    match error:
        case ChunkMissing() if seconds > GRACE:
            remedy = f"files of a replaced state are kept for {GRACE / 60:.0f} minutes: take a snapshot, and read that"
        case CheckpointDamaged():
            remedy = "rewind the pipeline to a snapshot that can be read; see docs/runbooks/StateUnavailable.md"
        case _:
            remedy = "see whether Cassandra answers; --cassandra names another address"
    return CliError(f"the state cannot be read: {error}", remedy=remedy)
