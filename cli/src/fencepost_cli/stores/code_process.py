"""A pipeline's code, checked by a process of its own: on this machine, or in an image."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from fencepost.contract import ContractError
from fencepost.contract.code_check import CHECKER, CodeAnswer, CodeProblem, CodeRequest
from fencepost_cli.errors import CliError
from fencepost_cli.stores.containers import run_in_image


def check_code(request: CodeRequest, image: str | None) -> Sequence[CodeProblem]:
    """Return what is wrong with the code. Raises CliError where it cannot be tried."""
    if image is None:
        _check_installed()
        ended = subprocess.run(
            [sys.executable, "-m", CHECKER],
            input=request.to_json(),
            capture_output=True,
            text=True,
            cwd=request.code_dir,
            env={**os.environ, "TZ": "UTC"},
            check=False,
        )
    else:
        ended = run_in_image(image, ["python", "-m", CHECKER], request.to_json())
    try:
        return CodeAnswer.from_json(ended.stdout).problems
    except ContractError as error:
        last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise CliError(
            f"the process that checks the code ended with {ended.returncode}: {last}",
            remedy="start it again; the code is not checked with --no-code",
        ) from error


def _check_installed() -> None:
    if find_spec("pyspark") is None:
        raise CliError(
            "the code is imported with Spark, and the package pyspark is not installed",
            remedy="install the command with its extra: uv tool install './cli[local]'; or pass --no-code",
        )
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise CliError(
            "the columns are those of a Spark frame, and no java is on the PATH",
            remedy="install Java 17 or 21, set JAVA_HOME, or pass --no-code",
        )
