"""How large a status gets: etcd takes objects of up to 1.5 MiB, with the spec and all metadata."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from fakes.large_status import PARTITIONS, TOPIC, full, offsets, row_of
from fencepost_operator.api import write_status
from fencepost_operator.decision.run.commits import OPEN_TRANSACTIONS
from fencepost_operator.observation import Watermarks
from unit.operator.scenes import NOW, ROW, SLOW

ETCD = 3 << 19
"""Bytes of etcd's --max-request-bytes, by default."""
REST = 300 << 10
"""Bytes for the spec, which kubectl repeats in an annotation, and for metadata."""


def test_a_status_with_five_thousand_partitions_fits_into_etcd() -> None:
    """Also with an open transaction in each of them, and while a batch is finished that was cut."""
    source = Watermarks(ends=offsets(200), high_watermarks=offsets(300))
    world = SLOW.asked(source={"kafka": {"bootstrapServers": "kafka:9092", "topics": [TOPIC]}})
    status = full(world.pipeline.status, now=NOW)
    decision = world.with_pipeline(status=status).seen(fence=row_of(ROW), source=source).decide()
    written = write_status(decision.status)
    assert len(written["committed"]["offsets"]) == PARTITIONS
    assert len(written["openTransactions"]) == OPEN_TRANSACTIONS
    largest = write_status(full(decision.status, now=NOW))
    assert len(largest["finishing"]["until"]) == PARTITIONS
    assert len(json.dumps(largest, separators=(",", ":"))) < ETCD - REST


def test_the_transactions_that_are_open_for_longest_are_kept() -> None:
    """Kafka names the partitions in any order, and a new transaction must not hide an old one."""
    ends, marks = {"orders/9": 60}, {"orders/9": 61}
    first = SLOW.seen(source=Watermarks(ends=ends, high_watermarks=marks)).decide().status
    assert [found.partition for found in first.open_transactions] == ["orders/9"]
    many = {f"orders/{number}": 60 for number in range(10, 10 + 2 * OPEN_TRANSACTIONS)}
    later = SLOW.with_pipeline(status=first)
    source = Watermarks(ends=ends | many, high_watermarks=marks | dict.fromkeys(many, 61))
    world = later.seen(source=source)
    observation = replace(world.observation, now=NOW + timedelta(seconds=30))
    kept = replace(world, observation=observation).decide().status.open_transactions
    assert len(kept) == OPEN_TRANSACTIONS
    assert kept[0].partition == "orders/9"
