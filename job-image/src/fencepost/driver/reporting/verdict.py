"""How a run ends: an exception becomes a verdict in the termination log and an exit code, then the process is gone.

`os._exit`, not `sys.exit`: in a thread the latter ends nothing, and an exit hook could let Spark write on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from fencepost import errors
from fencepost.contract import (
    TERMINATION_LOG,
    ContractError,
    DriverConfig,
    ExitCode,
    NotJsonError,
    Reason,
    Verdict,
)
from fencepost.driver.reporting.last_lines import masked
from fencepost.errors import DataLoss, DriverError
from fencepost.fence import (
    FenceClockSkew,
    FenceCredentialsRejected,
    Fenced,
    FenceEndpointInvalid,
    FenceError,
    FenceMissing,
    FenceSchemaInvalid,
    FenceSchemaMissing,
    FenceSwapRefused,
    FenceUnavailable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """How a verdict names the database of the fence. `schema` documents its tables."""

    unreachable: Reason
    credentials_rejected: Reason
    rejected: Reason
    field: str
    schema: str


CASSANDRA: Final = Database(
    unreachable=Reason.CASSANDRA_UNREACHABLE,
    credentials_rejected=Reason.CASSANDRA_CREDENTIALS_REJECTED,
    rejected=Reason.CASSANDRA_REJECTED,
    field="spec.checkpoint.cassandra",
    schema="docs/fence-schema.cql",
)
POSTGRESQL: Final = Database(
    unreachable=Reason.POSTGRESQL_UNREACHABLE,
    credentials_rejected=Reason.POSTGRESQL_CREDENTIALS_REJECTED,
    rejected=Reason.POSTGRESQL_REJECTED,
    field="spec.checkpoint.postgresql",
    schema="docs/fence-schema.sql",
)


def database_of(config: DriverConfig) -> Database:
    """Return the database of a run's fence."""
    return POSTGRESQL if config.postgresql is not None else CASSANDRA


def judge(
    error: BaseException,
    *,
    epoch: int | None = None,
    version: int | None = None,
    batch: Mapping[str, tuple[int, int]] | None = None,
    database: Database = CASSANDRA,
) -> Verdict:
    """Return the verdict for what ended the run, whose fence is in `database`."""
    if _package(error) == "cassandra":
        error = _of_client(error)
    code, reason, remedy = _classify(error, database)
    record = error.record if isinstance(error, errors.PoisonRecord) else None
    loss = error.loss.id if isinstance(error, DataLoss) and error.loss is not None else ""
    return Verdict(
        exit_code=int(code),
        reason=reason,
        message=_message(error),
        remedy=remedy,
        epoch=epoch,
        version=version,
        batch=batch or {},
        suspect=errors.suspects_record(error),
        record=dict([record]) if record is not None else {},
        loss=loss,
    )


_FENCE_LOST = (
    "If the pipeline was deleted, nothing. Otherwise the row was deleted by hand: restore it from fence_changes, or"
    " delete the pipeline and create it again, and it starts at spec.source.kafka.startingOffsets."
)


def _classify(error: BaseException, database: Database) -> tuple[ExitCode, Reason, str]:  # noqa: C901, PLR0911 - one line a kind
    down = errors.DependencyDown.default_remedy
    match error:
        case DriverError():
            return error.code, error.reason, error.remedy
        case Fenced():
            return ExitCode.FENCED, Reason.FENCED_OUT, "Nothing to do: another run continues from the last commit."
        case FenceMissing():
            return ExitCode.FENCED, Reason.FENCE_LOST, _FENCE_LOST
        case FenceClockSkew():
            return ExitCode.DEPENDENCY_DOWN, Reason.CLOCK_SKEW, error.remedy
        case FenceCredentialsRejected():  # before FenceUnavailable: a permission that is refused for long is both
            remedy = f"Correct the Secret of {database.field}.credentialsFrom, or the user's rights."
            return ExitCode.DEPENDENCY_DOWN, database.credentials_rejected, remedy
        case FenceEndpointInvalid() | FenceSwapRefused():
            return ExitCode.DEPENDENCY_DOWN, database.rejected, error.remedy
        case FenceUnavailable():
            return ExitCode.DEPENDENCY_DOWN, database.unreachable, down
        case FenceSchemaInvalid():
            remedy = f"Correct the table as {database.schema} has it; run that file to add what is missing."
            return ExitCode.DEPENDENCY_DOWN, Reason.FENCE_SCHEMA_INVALID, remedy
        case FenceSchemaMissing():
            remedy = f"Let the operator create the fence's tables, or create them by hand with {database.schema}."
            return ExitCode.DEPENDENCY_DOWN, Reason.FENCE_SCHEMA_MISSING, remedy
        case NotJsonError():
            return errors.ObjectChanged.code, errors.ObjectChanged.default_reason, errors.ObjectChanged.default_remedy
        case ContractError():
            remedy = "Use an operator and a job image of one release: set spec.job.image."
            return ExitCode.BAD_SPEC, Reason.CONTRACT_MISMATCH, remedy
        case _:
            return ExitCode.FAILED, Reason.FAILED, DriverError.default_remedy


def _of_client(error: BaseException) -> BaseException:
    """Return the fence's error for one of Cassandra's client that no part of the driver has translated."""
    from fencepost.fence.cassandra.errors import translated  # noqa: PLC0415 - the client is there by now

    try:
        with translated("a request to Cassandra"):
            raise error
    except FenceError as found:
        return found
    except type(error):
        return error


def _package(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _message(error: BaseException) -> str:
    text = str(error).strip()
    if not isinstance(error, DriverError | FenceError | ContractError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST // 2] + " … " + text[-_LONGEST // 2 :]


_LONGEST = 1500


def without(verdict: Verdict, secrets: Iterable[str]) -> Verdict:
    """Return the verdict with the secrets in its message covered: an error may quote what it was given."""
    (message,) = masked([verdict.message], secrets)
    return replace(verdict, message=message)


def leave(verdict: Verdict, *, path: Path = Path(TERMINATION_LOG)) -> NoReturn:
    """Write the verdict and end the process at once, with nothing after it."""
    text = verdict.to_json()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError:
        sys.stderr.write(text + "\n")
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(verdict.exit_code)
