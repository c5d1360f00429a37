"""`python -m bench NAME…|all`: measure on the testbed, print tables, write .cache/bench/NAME.json."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.costs import (
    backlog,
    batch,
    commit,
    footprint,
    frozen_rows,
    growth,
    image_sizes,
    memtables,
    operator_memory,
    peers,
    scrapes,
)
from bench.delays import apply, console_pages, latency, lost_node, page_delay, recovery, upgrades, zombie
from bench.fleet import measure as fleet
from bench.options import FOLDER, Options
from bench.samples import Result
from bench.stateful import large
from bench.stateful import measure as stateful
from flights.console import Console

BENCHES: Final[Mapping[str, Callable[[Console], Result]]] = {
    "images": image_sizes.measure,
    "commit": commit.measure,
    "batch": batch.measure,
    "cells": frozen_rows.measure,
    "backlog": backlog.measure,
    "long-backlog": backlog.measure_long,
    "latency": latency.measure,
    "operator-memory": operator_memory.measure,
    footprint.NAME: footprint.measure,
    console_pages.NAME: console_pages.measure,
}
IN_PARTS: Final[Mapping[str, Callable[[Console, Options], Result]]] = {
    growth.NAME: growth.measure,
    peers.NAME: peers.measure,
    memtables.NAME: memtables.measure,
    scrapes.NAME: scrapes.measure,
    stateful.NAME: stateful.measure,
    large.NAME: large.measure,
}
"""Programs whose parts can be measured one by one, and which resume after an interruption."""
STARTS: Final[Mapping[str, Callable[[Console, Options], Result]]] = {
    "apply": apply.measure,
    "recovery": recovery.measure,
    "zombie": zombie.measure,
    upgrades.NAME: upgrades.measure,
}
"""Programs that can measure an earlier build in turns with this one."""
IN_ROUNDS: Final[Mapping[str, Callable[[Console, Options], Result]]] = {
    "pages": page_delay.measure,
    lost_node.NAME: lost_node.measure,
}
BY_SIZE: Final[Mapping[str, Callable[[Console, Options], Result]]] = {fleet.NAME: fleet.measure}
"""Programs that can measure another number of pipelines."""
ONE_IMAGE: Final = (stateful.NAME, large.NAME)
"""Programs that run the image of `--before-job` in place of this build's."""
WITH_OPTIONS: Final = {**IN_PARTS, **STARTS, **IN_ROUNDS, **BY_SIZE}
ALL: Final = (*BENCHES, *STARTS, *IN_ROUNDS, *BY_SIZE, *IN_PARTS)
LINE_SECONDS: Final = 10.0


def main(words: Sequence[str] | None = None) -> int:
    """Run some; 1 when one could not be run to its end."""
    arguments = _arguments(words)
    options = Options(
        into=arguments.into,
        rows=arguments.rows,
        rounds=arguments.rounds,
        only=tuple(arguments.only),
        again=arguments.again,
        pipelines=arguments.pipelines,
        before_job=arguments.before_job,
        before_operator=arguments.before_operator,
    )
    console = Console(line_seconds=LINE_SECONDS)
    failed = 0
    for name in ALL if "all" in arguments.names else arguments.names:
        begun = time.monotonic()
        try:
            measure = WITH_OPTIONS.get(name)
            result = BENCHES[name](console) if measure is None else measure(console, options)
        except Exception as error:  # noqa: BLE001 - the next one is measured nevertheless
            failed += 1
            console.line(f"{name}: not measured: {type(error).__name__}: {error}")
            continue
        result.show(console)
        console.line(f"{name}: {result.save(options.into)}, {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    top = argparse.ArgumentParser(prog="bench", description="Figures of the testbed's pipeline; nothing is asserted.")
    top.add_argument("names", nargs="+", choices=[*ALL, "all"], metavar="NAME", help=f"{', '.join(ALL)} or all")
    top.add_argument("--into", type=Path, default=FOLDER, help="folder for the JSON (default: %(default)s)")
    parts = top.add_argument_group(f"for {', '.join(IN_PARTS)}, which resume after an interruption")
    parts.add_argument("--only", action="append", default=[], metavar="PART", help="measure this part; may be repeated")
    parts.add_argument("--rows", type=int, help="rows of the backlog (peers, memtables, metrics)")
    parts.add_argument("--again", action="store_true", help="forget what was measured of these parts")
    rounds = ", ".join(["peers", "memtables", "metrics", *STARTS, *IN_ROUNDS])
    top.add_argument("--rounds", type=int, help=f"rounds ({rounds})")
    top.add_argument("--pipelines", type=int, help=f"pipelines of the fleet ({', '.join(BY_SIZE)})")
    starts = top.add_argument_group(f"for {', '.join(STARTS)}, which measure an earlier build in turns with this one")
    starts.add_argument("--before-job", metavar="IMAGE", help="a local image of driver, master and workers")
    starts.add_argument("--before-operator", metavar="IMAGE", help="a local image of the operator, with its charts")
    found = top.parse_args(words)
    given = found.only or found.rows or found.again
    if given and "all" not in found.names and not set(found.names) & set(IN_PARTS):
        top.error(f"--only, --rows and --again are for {', '.join(IN_PARTS)}")
    if found.pipelines and "all" not in found.names and not set(found.names) & set(BY_SIZE):
        top.error(f"--pipelines is for {', '.join(BY_SIZE)}")
    if found.rounds and "all" not in found.names and not set(found.names) & set(WITH_OPTIONS):
        top.error(f"--rounds is for {', '.join(WITH_OPTIONS)}")
    if (found.before_job or found.before_operator) and not set(found.names) & {*STARTS, *ONE_IMAGE}:
        top.error(
            f"--before-job and --before-operator are for {', '.join(STARTS)}; {', '.join(ONE_IMAGE)} use --before-job"
        )
    return found


if __name__ == "__main__":
    # What a bench has started ends with it, and its topic goes: the next one would read what is left there.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
