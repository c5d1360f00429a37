"""Committed state that is read beside a driver: nothing can be changed, and its files stay for the grace period."""

from __future__ import annotations

import http.client
import random
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from fencepost.fence import FenceRow
from fencepost.fence.memory import no_fault
from fencepost.state.chunks import read_file
from fencepost.state.errors import ChunkMissing
from fencepost.state.fence_committer import directory_of
from fencepost.state.progress import unpack_committed
from fencepost.state.reading import Readable, readable, sizes_of
from fencepost.state.tree import StoredFile, Tree
from fencepost.state.webhdfs.name_service import PREFIX
from present import present
from unit.state.test_collector import working
from unit.state.world import GRACE, World


def requested(served: Readable, method: str, path: str, query: str) -> int:
    """Send one request to the service, as Spark's client does, and return the status."""
    url = urlsplit(served.location)
    connection = http.client.HTTPConnection(url.netloc)
    header = {served.settings["spark.hadoop.dfs.webhdfs.rest-csrf.custom-header"]: ""}
    connection.request(method, f"{PREFIX}{url.path}{path}?{query}", headers=header)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("PUT", "/state/0/0/9.zip", "op=CREATE"),
        ("PUT", "/offsets/.9.tmp", "op=CREATE&data=true"),
        ("PUT", "/commits/9", "op=CREATE&data=true"),
        ("PUT", "/state/1", "op=MKDIRS"),
        ("PUT", "/metadata", "op=RENAME&destination=/e0/other"),
        ("DELETE", "/state", "op=DELETE&recursive=true"),
    ],
)
def test_every_change_is_refused_and_reaches_neither_fence_nor_chunks(
    method: str, path: str, query: str, tmp_path: Path
) -> None:
    world = World(random.Random(1))
    working(world)
    committed = present(unpack_committed(world.row.checkpoint))
    before = world.row, dict(world.chunks.chunks), dict(world.index.rows)
    calls: list[str] = []
    world.fault = calls.append
    with readable(
        committed, world.chunks, folder=tmp_path, patience=1, failed=lambda error: calls.append(str(error))
    ) as served:
        assert requested(served, "GET", "/state", "op=LISTSTATUS") == 200
        assert requested(served, method, path, query) == 403
        assert requested(served, "GET", "/metadata", "op=GETFILESTATUS") == 200
    world.fault = no_fault
    assert set(calls) == {"before read_chunks", "after read_chunks"}
    assert (world.row, world.chunks.chunks, world.index.rows) == before


def content(world: World, row: FenceRow) -> list[bytes]:
    """Read every file of a row's state."""
    files = directory_of(present(unpack_committed(row.checkpoint)), world.chunks).tree.files.values()
    return [b"".join(read_file(world.chunks, each.id, each.length)) for each in files]


def test_files_of_a_replaced_state_stay_for_the_grace_period_and_then_fail_the_read() -> None:
    world = World(random.Random(1))
    driver = working(world)
    row = world.row
    before = content(world, row)
    for _ in driver.steps:
        if driver.committed == 20:
            break
    present(driver.collector).collect()
    world.clock.sleep(GRACE - 1)
    present(driver.collector).collect()
    assert content(world, row) == before
    world.clock.sleep(2)
    present(driver.collector).collect()
    with pytest.raises(ChunkMissing):
        content(world, row)


def test_files_of_a_snapshot_stay_for_as_long_as_it_exists() -> None:
    world = World(random.Random(1))
    driver = working(world)
    world.snapshots[0] = row = world.row
    before = content(world, row)
    for _ in driver.steps:
        if driver.committed == 20:
            break
    for _ in range(3):
        present(driver.collector).collect()
        world.clock.sleep(2 * GRACE)
    assert content(world, row) == before


def test_the_size_of_an_operator_is_that_of_its_files() -> None:
    file = StoredFile(uuid4(), 7)
    paths = ("state/0/0/1.zip", "state/0/1/left/1.zip", "state/12/0/1.zip", "state/x/1", "metadata2")
    assert sizes_of(Tree(files=dict.fromkeys(paths, file))) == {0: 14, 12: 7}
