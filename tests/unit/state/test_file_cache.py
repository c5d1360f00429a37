"""The copies of files on a worker's scratch volume."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from fencepost.state.webhdfs import file_cache
from fencepost.state.webhdfs.file_cache import FileCache


def put(cache: FileCache, length: int) -> UUID:
    file = uuid4()
    with cache.writing(file) as copy:
        copy.write(b"x" * length)
    return file


def has(cache: FileCache, file: UUID, length: int) -> bool:
    stream = cache.open(file, length)
    if stream is None:
        return False
    with stream:
        return stream.read() == b"x" * length


def test_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, most=25)
    first, second = put(cache, 10), put(cache, 10)
    assert has(cache, first, 10)
    third = put(cache, 10)
    assert [has(cache, file, 10) for file in (first, second, third)] == [True, False, True]
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) == 20


def test_file_larger_than_the_cache(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, most=5)
    assert not has(cache, put(cache, 10), 10)
    assert not list(tmp_path.glob("*/*"))


def test_a_file_that_is_written_takes_no_more_than_the_cache(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, most=5)
    with cache.writing(uuid4()) as copy:
        for _ in range(3):
            copy.write(b"xxxx")
        assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) == 4
    assert not list(tmp_path.glob("*/*"))


def test_restart_finds_the_files(tmp_path: Path) -> None:
    file = put(FileCache(tmp_path, most=100), 10)
    (next(tmp_path.iterdir()) / "1.part").write_bytes(b"cut")
    again = FileCache(tmp_path, most=100)
    assert has(again, file, 10)
    assert not has(again, file, 11)
    assert len(list(tmp_path.glob("*/*"))) == 1


def test_restart_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(FileCache(tmp_path, most=100), 10)
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(file_cache, "BOOT_ID", tmp_path / "boot")
    assert not has(FileCache(tmp_path, most=100), file, 10)
    assert not list(tmp_path.glob(f"*/{file}*"))


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    cache, file = FileCache(tmp_path, most=100), uuid4()

    def cut() -> None:
        with cache.writing(file) as copy:
            copy.write(b"x")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        cut()
    assert not has(cache, file, 1)
    assert not list(tmp_path.glob("*/*"))


def test_a_copy_that_is_gone_fails_nothing(tmp_path: Path) -> None:
    cache, file = FileCache(tmp_path, most=100), uuid4()
    with cache.writing(file) as copy:
        copy.write(b"x")
        FileCache(tmp_path, most=100)  # another one of the folder removes what it takes for cut
    assert not has(cache, file, 1)


def test_full_disk_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cache = FileCache(tmp_path, most=100)
    with monkeypatch.context() as context:
        context.setattr(Path, "open", full)
        file = put(cache, 10)
    assert not has(cache, file, 10)


def _written_into(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.write(b"y")


def _torn(path: Path) -> None:
    os.truncate(path, 5)
    os.truncate(path, 10)


def _replaced(path: Path) -> None:
    (path.parent / "foreign").write_bytes(b"y" * 10)
    (path.parent / "foreign").rename(path)


def _cut_short(path: Path) -> None:
    os.truncate(path, 5)


@pytest.mark.parametrize("fault", [_written_into, _torn, _replaced, _cut_short])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_copy_that_another_process_changed_is_not_used(
    tmp_path: Path, fault: Callable[[Path], None], restarts: bool
) -> None:
    """Another process of the pod changes a copy, while the service runs or while it does not: it is removed."""
    cache = FileCache(tmp_path, most=100)
    file, other = put(cache, 10), put(cache, 10)
    (path,) = tmp_path.glob(f"*/{file}.*")
    time.sleep(0.02)  # the clock of a file system ticks every few ms
    fault(path)
    found = FileCache(tmp_path, most=100) if restarts else cache
    assert [has(found, file, 10), has(found, other, 10)] == [False, True]
    assert not path.exists()
    with found.writing(file) as copy:
        copy.write(b"x" * 10)
    assert has(found, file, 10)


@pytest.mark.parametrize("name", ["{id}", "{id}.1.2.10", "{id}.1.2", "{id}.a.b.c", "state", "{id}.1.2.10.part"])
def test_a_foreign_file_is_removed(tmp_path: Path, name: str) -> None:
    file = put(FileCache(tmp_path, most=100), 10)
    (folder,) = tmp_path.iterdir()
    foreign = uuid4()
    (folder / name.format(id=foreign)).write_bytes(b"y" * 10)
    again = FileCache(tmp_path, most=100)
    assert [has(again, file, 10), has(again, foreign, 10)] == [True, False]
    assert len(list(folder.iterdir())) == 1
