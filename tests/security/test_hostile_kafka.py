"""A Kafka that a tenant wrote, against the real librdkafka: it takes a bounded part of the operator's process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from fakes.kafka import DESCRIBE_CONFIGS, LIST_OFFSETS, Broker
from fakes.secrets import NoSecrets
from fencepost_operator.adapters.kafka import client_pool
from fencepost_operator.adapters.kafka.client_pool import ClientLimits
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.api import KafkaConnection, ObjectKey
from fencepost_operator.errors import Busy, Rejected, Unreachable
from fencepost_operator.observation import Unknown
from present import present


def place(broker: Broker, *, namespace: str = "loud") -> KafkaConnection:
    return KafkaConnection(namespace=namespace, bootstrap_servers=broker.address, topics=("t",))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - of the kernel, and immediate


async def fewer_threads_than(count: int) -> None:
    async with asyncio.timeout(20):
        while threads() >= count:  # noqa: ASYNC110 - they are librdkafka's
            await asyncio.sleep(0.05)


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    made: list[Broker] = []
    yield made
    for broker in made:
        broker.close()


async def test_an_honest_broker_is_read(brokers: list[Broker]) -> None:
    """The broker of the other tests would be read, were it not for what it does there."""
    brokers.append(Broker(3))
    offsets = KafkaOffsets(NoSecrets())
    assert present(await offsets.ends(place(brokers[0]))).ends == {"t/0": 7}
    await offsets.close()


DAY: Final = {"cleanup.policy": "delete", "retention.ms": "86400000", "retention.bytes": "-1"}


@pytest.mark.parametrize(
    ("offset", "settings"),
    [
        (3, DAY),
        (2**63 - 1, DAY),
        (-1, {**DAY, "retention.ms": "9223372036854775807"}),
        (-(2**63), {**DAY, "retention.ms": "9" * 40}),
        (-1, {**DAY, "retention.bytes": "-9223372036854775808", "retention.ms": "\x00; rm -rf /"}),
        (-1, {"cleanup.policy": "delete" * 3000}),
        (-1, {f"retention.{number}": "1" for number in range(2000)}),
    ],
)
async def test_whatever_it_says_of_retention_and_timestamps_the_search_ends(
    brokers: list[Broker], offset: int, settings: dict[str, str]
) -> None:
    brokers.append(Broker())
    brokers[0].settings = settings
    offsets, reader = KafkaOffsets(NoSecrets()), ObjectKey("loud", "orders")
    source = present(await offsets.ends(place(brokers[0])))
    brokers[0].offset = offset
    brokers[0].requests.clear()
    for _ in range(5):
        found = await offsets.unread(reader, place(brokers[0]), source, {"t/0": 5})
        fact = found.retention["t"]
        assert isinstance(fact, Unknown) or fact.value.time is None or fact.value.time < timedelta(days=36_500)
        assert len(getattr(fact, "message", "") + getattr(fact, "remedy", "")) < 500
    assert brokers[0].requests.count(LIST_OFFSETS) <= (5 if offset < -1 else 15)
    assert brokers[0].requests.count(DESCRIBE_CONFIGS) == 1
    await offsets.close()


async def test_a_cluster_of_too_many_brokers_is_closed_at_once_and_not_dialled_in_a_loop(brokers: list[Broker]) -> None:
    brokers.append(Broker(400))
    before, now = threads(), 0.0
    offsets = KafkaOffsets(NoSecrets(), monotonic=lambda: now)
    with pytest.raises(
        Rejected, match=r"spec\.source\.kafka\.bootstrapServers has 400 brokers; .* at most 256"
    ) as caught:
        await offsets.ends(place(brokers[0]))
    assert "smaller Kafka cluster" in caught.value.remedy
    assert len(offsets) == 0
    await fewer_threads_than(before + 50)
    asked = len(brokers[0].requests)
    for _ in range(20):
        with pytest.raises(Rejected, match="400 brokers"):
            await offsets.ends(place(brokers[0]))
    assert len(brokers[0].requests) == asked, "it was dialled again"
    brokers[0].brokers, now = 2, 11.0
    present(await offsets.ends(place(brokers[0])))
    assert not offsets._pool._refused
    await offsets.close()


async def test_the_pause_after_a_refusal_doubles(brokers: list[Broker]) -> None:
    brokers.append(Broker(30))
    now = 0.0
    offsets = KafkaOffsets(NoSecrets(), limits=ClientLimits(brokers=20, first_pause=10.0), monotonic=lambda: now)
    pauses: list[float] = []
    for _ in range(3):
        with pytest.raises(Rejected):
            await offsets.ends(place(brokers[0]))
        (refused,) = offsets._pool._refused.values()
        pauses.append(refused.retry_at - now)
        now = refused.retry_at
    assert pauses == [10.0, 20.0, 40.0]
    await offsets.close()


async def test_an_answer_that_names_the_most_brokers_is_not_read(brokers: list[Broker]) -> None:
    """5000 brokers and the padding that librdkafka needs to parse them: 290 MiB of its memory, were it read."""
    brokers.append(Broker(5000, padding=100_000))
    before = threads()
    offsets = KafkaOffsets(NoSecrets())
    with pytest.raises(Unreachable, match="64 KiB"):
        await offsets.ends(place(brokers[0]))
    assert threads() < before + 50
    await offsets.close()


async def test_the_brokers_of_a_namespace_are_bounded_and_an_idle_client_makes_room(brokers: list[Broker]) -> None:
    brokers += [Broker(30, padding=2000) for _ in range(4)]
    offsets = KafkaOffsets(NoSecrets(), limits=ClientLimits(brokers_per_namespace=70, brokers_total=1000))
    await offsets.ends(place(brokers[0], namespace="quiet"))
    for broker in brokers[1:]:
        await offsets.ends(place(broker))
    held = [(client.namespace, client.brokers) for client in offsets._pool._clients.values()]
    assert held == [("quiet", 30), ("loud", 30), ("loud", 30)]
    await offsets.close()


async def test_the_brokers_of_all_are_bounded_at_the_cost_of_who_has_most(brokers: list[Broker]) -> None:
    brokers += [Broker(30, padding=2000) for _ in range(4)]
    offsets = KafkaOffsets(NoSecrets(), limits=ClientLimits(brokers_total=100))
    await offsets.ends(place(brokers[0], namespace="quiet"))
    for broker in brokers[1:]:
        await offsets.ends(place(broker))
    assert [client.namespace for client in offsets._pool._clients.values()] == ["quiet", "loud", "loud"]
    await offsets.close()


async def test_a_cluster_beyond_the_budget_waits_while_the_other_clients_are_in_use(brokers: list[Broker]) -> None:
    brokers += [Broker(30, padding=2000) for _ in range(2)]
    offsets = KafkaOffsets(NoSecrets(), limits=ClientLimits(brokers_per_namespace=50))
    await offsets.ends(place(brokers[0]))
    (first,) = offsets._pool._clients.values()
    first.users = 1
    with pytest.raises(Busy, match="more than the 50 brokers of one namespace"):
        await offsets.ends(place(brokers[1]))
    assert list(offsets._pool._clients.values()) == [first]
    await offsets.close()


async def test_clients_that_do_not_close_keep_only_their_namespace_from_opening_others(
    brokers: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: closing waits for a name lookup without an answer."""
    brokers.append(Broker())
    offsets = KafkaOffsets(NoSecrets())
    monkeypatch.setattr(client_pool, "LONGEST_WAIT", 0.05)
    offsets._pool._closing["loud"] = ClientLimits().per_namespace
    with pytest.raises(Busy, match="no turn at the Kafka clients"):
        await offsets.ends(place(brokers[0]))
    assert await offsets.ends(place(brokers[0], namespace="quiet")) is not None
    await offsets.close()


OUT_OF_THREADS = """
import gc, os, resource
from fencepost_operator.adapters.kafka.client import open_client
from fencepost_operator.api import KafkaConnection
from fencepost_operator.errors import PortError
connection = KafkaConnection(namespace="n", bootstrap_servers="127.0.0.1:1", topics=("t",))
gc.collect()
size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, ((size << 10) + (32 << 20), resource.RLIM_INFINITY))
try:
    kept = open_client({"bootstrap.servers": "127.0.0.1:1"}, connection)
except PortError as error:
    print(type(error).__name__, error, error.remedy, flush=True)
os._exit(0)  # librdkafka 2.16 may abort when it frees a client that it could not start
"""


def test_a_client_without_a_thread_is_the_operators_own_and_temporary_problem(tmp_path: Path) -> None:
    """Injected: a process that has no memory left for the stack of another thread, and enough for everything else.

    A stack takes 128 MiB here, and 32 MiB are left: what the interpreter frees meanwhile is less than a stack.
    Where the first thread starts and the next one does not, librdkafka 2.16 aborts.
    """
    done = subprocess.run(
        ["sh", "-c", 'ulimit -S -s 131072 && exec "$@"', "sh", sys.executable, "-c", OUT_OF_THREADS],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        timeout=60,
    )
    assert done.stdout.startswith("Busy "), done
    assert "no thread left" in done.stdout
    assert "propertiesFrom" not in done.stdout
