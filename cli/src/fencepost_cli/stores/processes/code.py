"""A pipeline's code, checked by a process of its own: on this machine, or in an image."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from fencepost.contract import ContractError
from fencepost.contract.code_check import CHECKER, CodeAnswer, CodeProblem, CodeRequest
from fencepost_cli.errors import CliError
from fencepost_cli.stores.containers import run_in_image
from fencepost_cli.stores.processes.spark import check_installed, variables


def check_code(request: CodeRequest, image: str | None) -> Sequence[CodeProblem]:
    """Return what is wrong with the code. Raises CliError where it cannot be tried."""
    if image is None:
        check_installed("the code is imported", otherwise="; or pass --no-code")
        ended = subprocess.run(
            [sys.executable, "-m", CHECKER],
            input=request.to_json(),
            capture_output=True,
            text=True,
            cwd=request.code_dir,
            env=variables(),
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
