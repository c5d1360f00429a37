"""Where the driver keeps copies of the state's files."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import pytest

from fencepost.contract import StateConfig
from fencepost.driver.stateful.checkpoint_service import serve
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.memory import MemoryChunks
from fencepost.state.webhdfs.authentication import Keys
from unit.driver.loop_world import config


def locally(epoch: int) -> AbstractContextManager[str]:
    made = config(epoch, state=StateConfig(partitions=1, max_bytes=1, data_port=0))
    unused = cast("Checkpoint", None)
    return serve(made, Keys("secret"), unused, MemoryChunks(), lambda _: None, host=None)


def test_local_runs_beside_each_other_share_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with locally(1), locally(2):
        assert len(list(tmp_path.iterdir())) == 2
    assert not list(tmp_path.iterdir())
