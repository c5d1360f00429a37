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


BUILDS = """
case "$1" in
image) echo sha256:oldest ;;
images) cat {builds} ;;
exec) case "$*" in *list*) cat {node} ;; *remove*) shift 6; printf '%s\\n' "$@" >>{removed} ;; esac ;;
rmi) shift; printf '%s\\n' "$@" >>{removed} ;;
esac
"""
"""A Docker client that lists builds, the newest first, and what a node has; `:dev` is on the oldest."""


def test_earlier_builds_leave_the_engine_and_the_nodes(tmp_path: Path) -> None:
    """The fault: each build stayed, 0.9 GB in the engine and in each node, until no disk was left."""
    keys = [f"{number:016x}" for number in range(6)]
    home = Home(tmp_path)
    home.prepare()
    builds, node, removed = (tmp_path / name for name in ("builds", "node", "removed"))
    rows = [f"{key} sha256:{key}" for key in keys] + [f"{'f' * 16} sha256:oldest", "dev sha256:oldest", "mine sha256:x"]
    builds.write_text("\n".join(rows))
    client = home.bin / "docker"
    client.write_text("#!/bin/sh" + BUILDS.format(builds=builds, node=node, removed=removed))
    client.chmod(0o755)
    log = Transcript(tmp_path / "log")

    built_images.remove_earlier_builds(Docker(home), "job", log)
    assert removed.read_text().split() == [f"job:{key}" for key in keys[3:]]

    removed.unlink()
    builds.write_text("\n".join(rows[:3] + rows[6:]))
    tags = [*(f"job:{key}" for key in keys), "job:dev", "job:mine", "kafka:1"]
    names = [*(f"docker.io/library/{tag}" for tag in tags), "sha256:used", "sha256:orphan"]
    manifests = [*keys, keys[0], "mine", "kafka", keys[0], keys[5]]
    listed = [f"{name} manifest sha256:{manifest}" for name, manifest in zip(names, manifests, strict=True)]
    node.write_text("\n".join(["REF TYPE DIGEST", *listed]))
    built_images.remove_from_node(Docker(home), "worker", ["job"], log)
    assert removed.read_text().split() == [*names[3:6], "sha256:orphan"]

    removed.unlink()
    builds.unlink()
    built_images.remove_from_node(Docker(home), "worker", ["job"], log)
    assert not removed.exists()  # an engine that gives no answer has not lost its builds
