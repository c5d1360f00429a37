"""A child process leaves nothing behind, whatever it started."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from fencepost_operator.adapters.child_process import child_process


@pytest.mark.parametrize("ends", ["", "sleep 60"], ids=["ended", "still runs"])
async def test_what_a_child_started_ends_with_it(ends: str) -> None:
    """Found: what a child had left behind was killed only where the child itself still ran."""
    script = f"sleep 60 >/dev/null & echo $!; {ends}"
    async with child_process("/bin/sh", "-c", script, stdout=asyncio.subprocess.PIPE) as process:
        assert process.stdout is not None
        started = int(await process.stdout.readline())
        if not ends:
            await process.wait()
        assert _lives(started)
    for _ in range(100):
        if not _lives(started):
            return
        await asyncio.sleep(0.05)
    os.kill(started, 9)
    pytest.fail("it lives on")


def _lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
