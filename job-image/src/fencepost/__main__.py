"""The commands of the job image: `fencepost run`, `fencepost purge` for a rewind, and `fencepost trial`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NoReturn

from fencepost.contract import TERMINATION_LOG, DriverConfig, Variable
from fencepost.driver import purge_command as purging
from fencepost.driver import run as driver
from fencepost.driver.reporting import logs
from fencepost.driver.trial import run as trying


def main() -> NoReturn:
    """Run the driver; the exit code is a `fencepost.contract.ExitCode`."""
    parser = argparse.ArgumentParser(prog="fencepost", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help=f"run the pipeline that the file in {Variable.CONFIG_FILE} describes")
    purge = commands.add_parser("purge", help="count or delete the output of the offsets in the file beside it")
    trial = commands.add_parser("trial", help="run new code on committed records, write nothing, and compare its rows")
    for command in (run, purge, trial):
        command.add_argument(
            "--termination-log",
            type=Path,
            default=Path(TERMINATION_LOG),
            help="where the last words go (default: %(default)s)",
        )
    options = parser.parse_args()
    logs.set_up()
    if options.command == "purge":
        purging.run(os.environ, termination_log=options.termination_log)
    if options.command == "trial":
        trying.run(os.environ, termination_log=options.termination_log)
    driver.run(os.environ, termination_log=options.termination_log, parse=DriverConfig.from_json)


if __name__ == "__main__":
    main()
