"""`python -m flights`: load a feed into Kafka, reconcile a table with what was produced, run a .cql file."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fencepost_cli.history.checks import check_history
from flights.console import Console
from flights.dataset import FLIGHTS, WEATHER, feed
from flights.history import read_history
from flights.ledger import Ledger
from flights.loader import Loader, LoadError
from flights.reconciliation import reconcile
from flights.sink import CassandraAddress, Table, run_script, session
from flights.topics import Topics
from testbed.environment import NotUpError, load


def cassandra_address() -> CassandraAddress:
    """The testbed's Cassandra, from the host."""
    there = load()
    return CassandraAddress(
        there.cassandra_host, there.cassandra_port, there.cassandra_username, there.cassandra_password
    )


def produce(arguments: argparse.Namespace, console: Console) -> int:
    """Load events; with an existing ledger file, continue where it ends."""
    bootstrap = arguments.bootstrap or load().kafka_host
    path: Path = arguments.ledger or Path(f".cache/{arguments.topic}.ledger")
    resumed = path.is_file()
    ledger = Ledger.read(path) if resumed else Ledger(arguments.topic, arguments.feed)
    Topics(bootstrap).create(arguments.topic, arguments.partitions)
    year = feed(ledger.feed)
    loader = Loader(bootstrap, year, ledger)
    until = ledger.next_number + (arguments.rows or max(0, len(year) - ledger.next_number))
    goal = f"events {ledger.next_number:,} to {until:,} of {ledger.feed} to topic {ledger.topic}"
    console.line(goal + (f", after {path}" if resumed else ""))
    try:
        loader.load(
            until, rate=arguments.rate, progress=lambda done: console.live(f"{done:,} of {until:,} events confirmed")
        )
    finally:
        ledger.save(path)
    console.line(f"{len(ledger):,} events are in {ledger.topic}; the ledger is {path}")
    return 0


def compare(arguments: argparse.Namespace, console: Console) -> int:
    """Compare a table with a ledger, and a pipeline's history with itself; 0 when all is well."""
    keyspace, _, name = arguments.table.partition(".")
    with session(cassandra_address()) as opened:
        history = read_history(opened, arguments.fence_keyspace, arguments.pipeline) if arguments.pipeline else ()
        report = reconcile(opened, Table(keyspace, name), Ledger.read(arguments.ledger), history=history)
    for line in report.lines():
        console.plain(line)
    story = check_history(history)
    for line in story.lines() if history else ():
        console.plain(line)
    return 0 if report.ok and story.ok else 1


def script(arguments: argparse.Namespace, console: Console) -> int:
    """Run the statements of a .cql file."""
    with session(cassandra_address()) as opened:
        run_script(opened, arguments.file.read_text())
    console.line(f"{arguments.file} ran")
    return 0


def rate(text: str) -> float | None:
    """Read a rate in events a second; 'max' is None."""
    return None if text == "max" else float(text)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="flights", description="Real flights for the testbed, and the ledger of what was produced."
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    loading = commands.add_parser("load", help="produce events to a topic")
    loading.set_defaults(function=produce)
    loading.add_argument("--feed", choices=[FLIGHTS, WEATHER], default=FLIGHTS)
    loading.add_argument("--topic", default=FLIGHTS)
    loading.add_argument("--rows", type=int, help="how many more (default: to the end of the year)")
    loading.add_argument("--rate", type=rate, default=None, help="events a second, or max (default)")
    loading.add_argument("--partitions", type=int, default=4)
    loading.add_argument("--bootstrap", help="host:port of Kafka (default: the testbed's)")
    loading.add_argument("--ledger", type=Path, help="where to note what went where (default: .cache/TOPIC.ledger)")

    comparing = commands.add_parser("reconcile", help="compare a table with what was produced")
    comparing.set_defaults(function=compare)
    comparing.add_argument("table", metavar="KEYSPACE.TABLE")
    comparing.add_argument("--ledger", type=Path, required=True)
    comparing.add_argument("--pipeline", help="the fence row's key, to check its history too")
    comparing.add_argument("--fence-keyspace", default="fencepost")

    running = commands.add_parser("cql", help="run a .cql file on the testbed's Cassandra")
    running.set_defaults(function=script)
    running.add_argument("file", type=Path)
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = parser().parse_args(words)
    try:
        return int(arguments.function(arguments, Console()))
    except (LoadError, NotUpError, ValueError, OSError) as error:
        sys.stderr.write(f"flights: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
