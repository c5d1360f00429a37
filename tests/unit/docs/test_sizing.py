"""docs/sizing.md says what the operator gives."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from fakes.manifests import body, spec_of
from fencepost_operator.api import ReconcileConfig, Spec, read_pipeline
from fencepost_operator.api.quantities import MEBIBYTE, parse_bytes
from fencepost_operator.desired.jobs.driver_config import batch_bytes as batch_of
from fencepost_operator.desired.jobs.driver_config import driver_config
from fencepost_operator.desired.resources import driver_memory, driver_resources, executor_heap
from present import present

PAGE: Final = (Path(__file__).parents[3] / "docs" / "sizing.md").read_text()


def test_a_workers_memory_is_shared_out_as_the_page_says() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) MiB \| (\d+) MiB \| (\d+) MiB \|$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for memory, heap, rest, batch in rows:
        size = parse_bytes(memory)
        assert int(heap) == executor_heap(size) // MEBIBYTE
        assert int(rest) == size // MEBIBYTE - int(heap)
        assert int(batch) == batch_bytes(size) // MEBIBYTE


def batch_bytes(worker_memory: int) -> int:
    """The bytes of a batch with one such worker, as the driver is given them."""
    pipeline = read_pipeline(body())
    assert isinstance(pipeline.spec, Spec)
    cluster = replace(
        pipeline.spec.cluster, workers=1, worker=replace(pipeline.spec.cluster.worker, memory=worker_memory)
    )
    spec = replace(pipeline.spec, cluster=cluster)
    config = driver_config(
        key=pipeline.key, spec=spec, references={}, config=ReconcileConfig(cluster_uid="c"), epoch=1, generation=1
    )
    return present(config.source.max_bytes_per_batch)


def test_a_driver_without_workers_has_what_the_page_says() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) MiB \| (\d+) MiB \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for heap, pod, batch in rows:
        spec = spec_of(
            cluster={"workers": 0}, job={"image": "job:1", "entrypoint": "orders.job:transform", "memory": heap}
        )
        assert driver_resources(spec)["limits"]["memory"] == f"{pod}Mi"
        assert batch_of(spec) == int(batch) * MEBIBYTE


def test_the_drivers_pod_has_what_the_page_says() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) MiB \|$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    assert all(int(pod) == driver_memory(parse_bytes(heap)) // MEBIBYTE for heap, pod in rows)
