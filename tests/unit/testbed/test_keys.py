"""Content keys change with what they are made of, and with nothing else."""

import subprocess
from pathlib import Path

import pytest

from testbed.keys import KEY_LENGTH, content_key, files_key, folder_files, source_files


def test_order_does_not_matter() -> None:
    assert content_key({"a": "1", "b": "2"}) == content_key({"b": "2", "a": "1"})


def test_a_key_fits_an_image_tag() -> None:
    key = content_key({})
    assert len(key) == KEY_LENGTH
    assert key.isalnum()


@pytest.mark.parametrize(
    "other",
    [{"a": "1", "b": "3"}, {"a": "1"}, {"a": "1b", "": "2"}, {"ab": "1", "": "2"}, {"a": "1", "b": "2", "c": ""}],
)
def test_different_inputs_have_different_keys(other: dict[str, str]) -> None:
    assert content_key({"a": "1", "b": "2"}) != content_key(other)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "one.py").write_text("one")
    (tmp_path / "source" / "two.sh").write_text("two")
    return tmp_path


def test_bytes_names_and_execute_bits_count(tree: Path) -> None:
    keys = [files_key(tree, folder_files(tree))]
    (tree / "source" / "one.py").write_text("changed")
    keys.append(files_key(tree, folder_files(tree)))
    (tree / "source" / "two.sh").chmod(0o755)
    keys.append(files_key(tree, folder_files(tree)))
    (tree / "source" / "two.sh").rename(tree / "source" / "three.sh")
    keys.append(files_key(tree, folder_files(tree)))
    assert len(set(keys)) == 4


def test_times_and_place_do_not_count(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("clone")
    (elsewhere / "source").mkdir()
    for name in ("one.py", "two.sh"):
        (elsewhere / "source" / name).write_text((tree / "source" / name).read_text())
    assert files_key(tree, folder_files(tree)) == files_key(elsewhere, folder_files(elsewhere))


def test_what_python_leaves_behind_does_not_count(tree: Path) -> None:
    before = files_key(tree, folder_files(tree))
    (tree / "source" / "__pycache__").mkdir()
    (tree / "source" / "__pycache__" / "one.pyc").write_bytes(b"")
    assert files_key(tree, folder_files(tree)) == before


def test_sources_are_tracked_and_untracked_files_but_not_ignored_ones(tree: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    (tree / ".gitignore").write_text("*.log\n")
    (tree / "source" / "noise.log").write_text("noise")
    subprocess.run(["git", "-C", str(tree), "add", "source/one.py"], check=True)
    names = [path.name for path in source_files(tree, ["source", "missing"])]
    assert names == ["one.py", "two.sh"]


def test_a_tracked_file_that_was_deleted_is_not_a_source(tree: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    subprocess.run(["git", "-C", str(tree), "add", "source"], check=True)
    (tree / "source" / "one.py").unlink()
    assert [path.name for path in source_files(tree, ["source"])] == ["two.sh"]


def test_without_git_every_file_is_a_source(tree: Path) -> None:
    assert [path.name for path in source_files(tree, ["source"])] == ["one.py", "two.sh"]
