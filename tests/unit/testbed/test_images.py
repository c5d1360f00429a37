"""Images reach the nodes, whatever else is on its way to them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed.engine import Docker
from testbed.home import Home
from testbed.images import built_images
from testbed.process import CommandError, Transcript

NODES = ("one", "two")
CLIENT = """#!/bin/sh
case "$1" in
image) echo sha256:0123456789abcdef ;;
save) exec head -c 4000000 /dev/zero ;;
exec) case "$*" in *import*)
    [ "$3" = {late} ] && sleep 0.5
    exec flock --no-fork "{locks}/$3" {importing}
    esac ;;
esac
"""
"""A Docker client with nodes that let one import at a time write, as containerd does with a layer."""


def engine(folder: Path, *, late: str, importing: str) -> Docker:
    """A Docker client whose import at the node `late` begins after the other."""
    home = Home(folder / f"home-{late}")
    home.prepare()
    client = home.bin / "docker"
    client.write_text(CLIENT.format(late=late, locks=folder, importing=importing))
    client.chmod(0o755)
    return Docker(home)


def test_two_archives_with_a_common_layer_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: each holds the layer at one node and waits for it at the other."""
    monkeypatch.setattr(built_images, "LOAD_LIMIT", 10)

    def load(late: str) -> None:
        docker = engine(tmp_path, late=late, importing="sh -c 'cat >/dev/null'")
        built_images.load(docker, NODES, ["image:dev"], Transcript(tmp_path / f"{late}.log"))

    with ThreadPoolExecutor() as pool:
        list(pool.map(load, NODES))


def test_an_import_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_images, "LOAD_LIMIT", 1)
    docker = engine(tmp_path, late=NODES[1], importing="sleep 60")
    with pytest.raises(CommandError, match="took more than 1 s"):
        built_images.load(docker, NODES, ["image:dev"], Transcript(tmp_path / "log"))
