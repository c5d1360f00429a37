"""`python -m shop`: records for an example of `examples/shop`, and its tables compared with Kafka's log."""

import argparse
import sys
from collections.abc import Sequence

from demo.scene import EXAMPLES, Scene
from flights.console import Console
from flights.ledger import Ledger
from flights.loader import Loader, LoadError
from flights.sink import CassandraDownError
from shop.comparison import read_arrivals, read_tables
from shop.expectation import differences, expected
from shop.feeds import Shop
from testbed.environment import NotUpError, load


def produce(scene: Scene, arguments: argparse.Namespace, console: Console) -> int:
    """Make the tables and topics of an example; add records to each of its topics."""
    scene.prepare()
    bootstrap = scene.environment.kafka_host
    for topic in scene.topics:
        before = len(read_arrivals(bootstrap, [topic]))
        feed = Shop().feed(topic).after(before)
        Loader(bootstrap, feed, Ledger(topic, topic)).load(arguments.records)
        console.line(f"{before + arguments.records:,} records are in {topic}")
    return 0


def compare(scene: Scene, _: argparse.Namespace, console: Console) -> int:
    """Compare the tables of an example with the log of its topics; 0 when they agree."""
    log = read_arrivals(scene.environment.kafka_host, scene.topics)
    found = read_tables(scene.cassandra, scene.tables)
    differing = differences(found, expected(scene.name, log, found))
    for line in differing:
        console.plain(line)
    counts = ", ".join(f"{rows.total():,} rows of {name}" for name, rows in found.items())
    console.line(f"{counts} {'differ from' if differing else 'agree with'} {len(log):,} records")
    return 1 if differing else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="shop", description="Records for the stateful examples on the testbed.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    names = sorted(path.parent.name for path in (EXAMPLES / "shop").glob("*/pipeline.yaml"))

    loading = commands.add_parser("load", help="make an example's tables and topics, and produce records")
    loading.set_defaults(function=produce)
    loading.add_argument("example", choices=names)
    loading.add_argument("--records", type=int, default=50_000, help="how many more of each topic (default: 50,000)")

    comparing = commands.add_parser("compare", help="compare an example's tables with Kafka's log")
    comparing.set_defaults(function=compare)
    comparing.add_argument("example", choices=names)
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = parser().parse_args(words)
    try:
        with Scene.of(load(), f"shop/{arguments.example}") as scene:
            return int(arguments.function(scene, arguments, Console()))
    except (NotUpError, LoadError, CassandraDownError) as error:
        sys.stderr.write(f"shop: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
