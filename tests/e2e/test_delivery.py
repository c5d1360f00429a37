"""`kubectl apply`, and every row arrives."""

from __future__ import annotations

import pytest

from e2e.stream import Stream

pytestmark = [pytest.mark.e2e, pytest.mark.fresh, pytest.mark.timeout(480)]


def test_an_applied_pipeline_gets_ready_and_writes_every_row_once(shared: Stream) -> None:
    """No fault: the example is applied over a topic that is being filled; the first run is epoch 1 and stays."""
    with shared.load.flowing():
        status = shared.pipeline.wait_ready()
        shared.commits_past(None)
    shared.load.burst(3_000)
    row = shared.check_every_row()
    assert (row.epoch, status["epoch"], shared.pipeline.restarts()) == (1, 1, 0)
    assert row.driver == status["run"]["podUid"]


def test_what_it_made_is_owned_and_only_pods_of_the_restricted_kind_run(stream: Stream) -> None:
    """No fault: what the operator made bears the pipeline's name, under Pod Security `restricted`; one driver runs."""
    owned = stream.pipeline.owned()
    kinds = {name.partition("/")[0] for name in owned}
    assert {"Job", "Pod", "StatefulSet", "Service", "Secret", "PodDisruptionBudget"} <= kinds
    drivers = [pod for pod in stream.pipeline.kubectl.items("pods") if "-run-" in pod["metadata"]["name"]]
    assert [pod["status"]["phase"] for pod in drivers] == ["Running"]
