"""Two Kubernetes clusters with an operator each, and one fence on a real Cassandra: one is lost, comes back, and moves.

No node is there, as in `test_endings_and_upgrades`: pods say that they run, and drivers claim the fence.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import pytest
from cassandra.cluster import Session

from contract.cassandra import open_session
from fencepost.fence import Fence, Fenced, FenceRow
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost_operator.api import State
from flights.topics import Topics
from harness.kubernetes.control_plane import control_plane
from harness.waiting import eventually
from integration.lifecycle.kubelet import Kubelet
from integration.lifecycle.operators import Installed
from integration.lifecycle.test_endings_and_upgrades import PLACE, Stage
from present import present
from testbed.environment import Environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), pytest.mark.long]

NAME: Final = "orders"
FAILOVER: Final = {"takeOverAfter": "30s"}


@dataclass(frozen=True, slots=True)
class Region:
    """One cluster: its operator's chart, and its pipeline."""

    stage: Stage
    uid: str

    @property
    def status(self) -> dict[str, Any]:
        """The pipeline's status."""
        found: dict[str, Any] = present(self.stage.kubectl.get("spl", NAME)).get("status", {})
        return found

    def says(self, state: State, reason: str) -> bool:
        """Return whether the pipeline is Ready in this phase, for this reason."""
        status = self.status
        found = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), None)
        assert found is not None, status
        assert (status["state"], found["status"], found["reason"]) == (state, "True", reason), found["message"]
        return True

    def runs(self) -> bool:
        """Return whether the pipeline streams here, by its status and by the row."""
        self.says(State.RUNNING, "Streaming")
        row = self.stage.row(NAME)
        assert row.owner.startswith(f"{self.uid}/"), row.owner
        assert row.driver in {pod["metadata"]["uid"] for pod in self.stage.kubectl.items("pods")}, row
        return True

    def waits(self) -> bool:
        """Return whether the pipeline waits here, with nothing of a run left."""
        self.says(State.STANDBY, "FailoverStandby")
        left = self.stage.kubectl.items("statefulsets,pods")
        assert not left, [item["metadata"]["name"] for item in left]
        return True


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = open_session()
    yield session
    session.cluster.shutdown()


@pytest.fixture(scope="module")
def regions(
    environment: Environment, session: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Region, Region]]:
    """Two clusters that know nothing of each other."""
    mark = secrets.token_hex(3)
    topic, keyspace, found = f"failover-{mark}", f"failover_{mark}", []
    Topics(environment.kafka_host).create(topic, 1)
    with ExitStack() as stack:
        for name in ("east", "west"):
            plane = stack.enter_context(control_plane())
            installed = Installed.by_helm(plane, tmp_path_factory.mktemp(name))
            made = Stage(installed, environment, topic, keyspace, session)
            made.in_namespace(PLACE)
            stack.enter_context(Kubelet(plane, CassandraFenceTable.over(session, keyspace)).at_work())
            uid = present(plane.kubectl("default").get("namespace", "kube-system"))["metadata"]["uid"]
            found.append(Region(made, uid))
        yield found[0], found[1]
    session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    Topics(environment.kafka_host).delete(topic)


def commits_no_more(region: Region, row: FenceRow) -> None:
    """Check that a driver of an older row, wherever it lives, is refused."""
    fence = Fence(CassandraFenceTable.over(region.stage.session, region.stage.keyspace), row.pipeline)
    with pytest.raises(Fenced):
        fence.commit(row, offsets=row.offsets, planned=row.offsets, records=0, duration_ms=1)


def move(region: Region, to: Region) -> None:
    """Run what docs/operations.md names."""
    command = [sys.executable, "-m", "fencepost_cli", "failover", f"{PLACE}/{NAME}", "--to", to.uid, "--yes"]
    kubeconfig = str(region.stage.installed.plane.kubeconfig)
    subprocess.run(command, check=True, capture_output=True, timeout=120, env={**os.environ, "KUBECONFIG": kubeconfig})


def test_a_region_is_lost_comes_back_and_gets_the_pipeline_again_by_a_move(regions: tuple[Region, Region]) -> None:
    """SIGKILL of one operator while its API server, etcd and controllers stand still; then all of it comes back."""
    east, west = regions
    manifest = east.stage.manifest(NAME, failover=FAILOVER)
    manifest["spec"]["checkpoint"]["cassandra"]["consistency"] = "QUORUM"
    with west.stage.installed.operator():
        with east.stage.installed.killable() as operator:
            east.stage.kubectl.apply(manifest)
            eventually("the first one runs", east.runs, seconds=180, pause=1.0)
            west.stage.kubectl.apply(manifest)
            eventually("the second one waits", west.waits, seconds=120, pause=1.0)
            assert f"Cluster {east.uid} owns the checkpoint" in west.status["message"]
            before = east.stage.row(NAME)
            time.sleep(35)  # longer than takeOverAfter: an idle pipeline with a living operator stays
            assert east.stage.row(NAME) == before
            east.stage.installed.plane.freeze()
            operator.kill()
            since = time.monotonic()
            eventually("the second one runs", west.runs, seconds=240, pause=0.5)
            print(f"the other cluster streams {time.monotonic() - since:.1f} s after the loss")
        after = west.stage.row(NAME)
        assert after.epoch > before.epoch
        commits_no_more(west, before)
        east.stage.installed.plane.thaw()
        with east.stage.installed.operator():
            eventually("the first one waits", east.waits, seconds=240, pause=1.0)
            assert west.stage.row(NAME).epoch == after.epoch, "what comes back takes nothing"
            held = west.stage.row(NAME)
            move(west, east)
            since = time.monotonic()
            eventually("it has moved", east.runs, seconds=240, pause=0.5)
            print(f"the first cluster streams {time.monotonic() - since:.1f} s after the request")
            eventually("the second one waits again", west.waits, seconds=240, pause=1.0)
            moved = east.stage.row(NAME)
            assert moved.offsets == held.offsets
            commits_no_more(east, held)
