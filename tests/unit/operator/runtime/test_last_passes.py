"""What is kept of pipelines in memory between two passes: as much as a tenant writes, up to a limit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import pytest

from fakes.manifests import KEY, body
from fencepost_operator.api import GROUP, Pipeline, Revision, read_pipeline
from fencepost_operator.observation import Began, Known, Observation
from fencepost_operator.runtime.passes.last_passes import LastPasses
from present import present
from unit.operator.scenes import WELL

LARGE: Final = "x" * 70_000


def pipeline(**job: Any) -> Pipeline:
    return read_pipeline(body(job={"image": "registry.example/job:1", "entrypoint": "orders.job:transform", **job}))


def test_a_pipeline_that_is_not_at_rest_is_not_kept() -> None:
    passes = LastPasses(figures_interval=15.0)
    passes.begin(pipeline(args=[LARGE]))
    assert LARGE not in repr(passes)


LARGEST: Final[dict[str, tuple[Pipeline, Observation]]] = {
    "the spec": (pipeline(args=[LARGE]), WELL.observation),
    "an annotation": (replace(pipeline(), annotations={f"{GROUP}/note": LARGE}), WELL.observation),
    "a finalizer": (replace(pipeline(), finalizers=(LARGE,)), WELL.observation),
    "the stable spec": (
        pipeline(),
        replace(WELL.observation, stable=Known(Began(revision=Revision.of(KEY.name, {"note": LARGE}, {})))),
    ),
}


@pytest.mark.parametrize("what", LARGEST)
def test_a_pipeline_at_rest_is_kept_unless_it_is_large(what: str) -> None:
    passes = LastPasses(figures_interval=15.0)
    large, observation = LARGEST[what]
    passes.begin(large)
    passes.begin_rest(large, observation, math.inf)
    assert LARGE not in repr(passes)
    assert passes.take_rest(KEY, 0.0) is None
    passes.begin_rest(pipeline(), WELL.observation, math.inf)
    assert passes.take_rest(KEY, 0.0) is not None


def test_an_annotation_that_no_decision_reads_is_not_kept() -> None:
    passes = LastPasses(figures_interval=15.0)
    found = replace(pipeline(), annotations={"example.com/note": LARGE})
    passes.begin(found)
    passes.begin_rest(found, WELL.observation, math.inf)
    assert LARGE not in repr(passes)
    rest = present(passes.take_rest(KEY, 0.0))
    passes.continue_rest(replace(rest, pipeline=found))  # a write of the status returns the whole object
    assert LARGE not in repr(passes)
    assert passes.take_rest(KEY, 0.0) is not None


@pytest.mark.parametrize(
    ("pipelines", "pause"), [(1, 15.0), (600, 15.0), (1_000, 25.0), (5_000, 60.0)], ids=["one", "some", "many", "more"]
)
def test_figures_of_many_pipelines_are_written_less_often(pipelines: int, pause: float) -> None:
    passes = LastPasses(figures_interval=15.0, figures_per_second=40.0, slowest_figures=60.0)
    for number in range(pipelines):
        passes.begin(replace(pipeline(), key=replace(KEY, name=f"orders-{number}")))
    key = replace(KEY, name="orders-0")
    figures = replace(pipeline().status, lag=7)
    passes.wrote(key, pipeline().status, 1000.0)
    assert not passes.is_due(key, figures, 1000.0 + pause - 0.1)
    assert passes.is_due(key, figures, 1000.0 + pause)
    assert passes.is_due(key, replace(figures, epoch=9), 1000.1), "anything else is written at once"
