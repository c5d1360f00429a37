"""A pipeline to measure: the departures example from nothing, changed as a user would change it, then gone again."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from demo.scene import MADE_BY, Scene
from fencepost.fence import FenceRow, FenceUnavailable
from flights.dataset import flights
from flights.ledger import Ledger
from harness.load import Load
from harness.waiting import eventually
from testbed.engine import Docker
from testbed.environment import load
from testbed.home import Home
from testbed.images.built_images import load_one
from testbed.process import Transcript

COMMIT_SECONDS: Final = 300.0
TRANSFORMS: Final = {"": "departures_arrow:transform", ", DataFrame": "departures:transform"}
"""The example's two ways to make the same rows, by what is added to the names of their samples."""


@contextmanager
def staged() -> Iterator[Scene]:
    """An empty stage, cleared again when the block ends well; after a failure it stays to be looked at."""
    with Scene.of(load()) as scene:
        scene.clear()
        scene.prepare()
        yield scene
        scene.clear()


@functools.cache
def build_contestant(folder: Path, image: str) -> None:
    """Build the image of a folder and load it into the nodes that run Spark; once. Raises StepError, CommandError."""
    home = Home.of_user()
    log = Transcript(home.logs / f"{folder.name}-image.log")
    Docker(home).build(folder, folder / "Dockerfile", folder.name, [image], log)
    load_one(home, image, log)


def clean(scene: Scene) -> None:
    """Remove what a contestant left; the topic stays."""
    if scene.kubectl.get("namespace", scene.kubectl.namespace) is not None:
        scene.remove_pipeline()
        scene.kubectl.delete("namespace", scene.kubectl.namespace, seconds=180)
    scene.forget_fence()
    for table in scene.tables:
        scene.cassandra.execute(f"TRUNCATE {table}")


def make_namespace(scene: Scene) -> None:
    """Make the namespace before the pipeline, so that the `ConfigMap`s of a bench can be in it."""
    name = scene.kubectl.namespace
    scene.kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {MADE_BY: "demo"}}}
    )


def source(scene: Scene) -> Load:
    """What feeds the pipeline's topic."""
    return Load(scene.environment.kafka_host, Ledger(scene.topics[0], flights().name))


def committed(row: FenceRow | None) -> int:
    """Records up to the fence row's offsets."""
    return sum(row.offsets.values()) if row is not None else 0


def wait_for_commit(scene: Scene, *, past: int = 0, epoch: int = 0, seconds: float = COMMIT_SECONDS) -> FenceRow:
    """Wait until more than `past` records are committed, under `epoch` or a later one; return the row."""

    def there() -> FenceRow | None:
        try:
            row = scene.fence(patience=0)
        except FenceUnavailable:
            return None
        return row if row is not None and row.epoch >= epoch and committed(row) > past else None

    return eventually(
        f"more than {past:,} records are committed in epoch {epoch} or later", there, seconds=seconds, pause=0.5
    )


def batches(**kafka: Any) -> Mapping[str, Any]:
    """A patch of the spec: settings of the source."""
    return {"source": {"kafka": kafka}}


def pipeline(entrypoint: str, **kafka: Any) -> Mapping[str, Any]:
    """A patch of the spec: the transform, and settings of the source."""
    return {"job": {"entrypoint": entrypoint}, **batches(**kafka)}
