"""A scratch volume from which no code runs is named before RocksDB is loaded."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from fencepost.contract import Reason
from fencepost.errors import BatchFailed, WorkerError, begin_attempt, from_text
from fencepost.formats.decoding import AS_BYTES
from fencepost.spark.source import read_rows
from fencepost.spark.tasks.counts import SliceCounter
from fencepost.spark.tasks.scratch import FOLDER, check_executable


def mounted(monkeypatch: pytest.MonkeyPatch, flags: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))


def no_counter(number: int) -> SliceCounter:
    raise AssertionError(number)


def test_a_volume_with_noexec_ends_the_first_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begin_attempt()
    mounted(monkeypatch, os.ST_NOEXEC | os.ST_NOSUID)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    rows = pa.RecordBatch.from_pydict({"row": ["not read"]})
    with pytest.raises(WorkerError) as caught:
        list(read_rows(lambda *_, **__: iter(()), no_counter, AS_BYTES, [rows]))
    failure = from_text(str(caught.value))
    assert isinstance(failure, BatchFailed)
    assert failure.reason is Reason.SCRATCH_NOT_EXECUTABLE
    assert os.uname().nodename in failure.message
    assert "without noexec" in failure.remedy


def test_other_volumes_and_local_runs_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_executable({FOLDER: str(tmp_path)})
    mounted(monkeypatch, os.ST_NOSUID)
    check_executable({FOLDER: "/local"})
    mounted(monkeypatch, os.ST_NOEXEC)
    check_executable({})
