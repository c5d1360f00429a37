"""A container's memory by either version of cgroups, and a process' by /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencepost.memory_use import ContainerMemory, resident
from present import present

V2 = {
    "memory.current": "900\n",
    "memory.max": "1000\n",
    "memory.stat": "anon 500\nfile 420\nshmem 20\ninactive_file 300\nactive_file 100\nslab_reclaimable 10\n",
}
V1 = {
    "memory/memory.usage_in_bytes": "900\n",
    "memory/memory.limit_in_bytes": "1000\n",
    "memory/memory.stat": "cache 420\ninactive_file 1\nactive_file 2\ntotal_inactive_file 300\ntotal_active_file 110\n",
}
NO_LIMIT_V2 = {**V2, "memory.max": "max\n"}
NO_LIMIT_V1 = {**V1, "memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [(V2, 1000), (V1, 1000), (NO_LIMIT_V2, None), (NO_LIMIT_V1, None)],
    ids=["v2", "v1", "v2-max", "v1-huge"],
)
def test_what_the_kernel_gives_up_before_it_kills_does_not_count(
    files: dict[str, str], limit: int | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = ContainerMemory.here(tmp_path)
    assert found == ContainerMemory(used=900, unreclaimable=490, limit=limit)
    named = {family.name: family.samples[0].value for family in found.metrics("x")}
    assert named.get("fencepost_x_container_memory_limit_bytes") == limit
    assert named["fencepost_x_container_unreclaimable_bytes"] == 490


def test_a_figure_that_the_kernel_does_not_have_has_no_series(tmp_path: Path) -> None:
    assert not list(ContainerMemory.here(tmp_path).metrics("x"))


def test_a_process_that_is_gone_has_no_memory(tmp_path: Path) -> None:
    own = present(resident(os.getpid()))
    assert own > 1 << 20
    assert resident(1, tmp_path) is None
