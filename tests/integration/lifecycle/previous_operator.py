"""The operator as a program that hashes as the release before hashes had a version, and does not know the others.

It sets a stage.  Where the release's own code is at hand, `operators.PREVIOUS_RELEASE` takes that instead.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from unittest import mock

from fencepost_operator.__main__ import main
from fencepost_operator.api import Pipeline, ReconcileConfig, Spec
from fencepost_operator.decision import chain, revisions, rollout, unfinished
from fencepost_operator.decision.rules import preconditions, rollback
from fencepost_operator.desired.hashes import Fingerprints
from fencepost_operator.desired.hashes_v1 import fingerprints_v1
from fencepost_operator.observation import Observation


def _without_chart(spec: Spec, references: Mapping[str, str | None], _chart: str = "") -> Fingerprints:
    return fingerprints_v1(spec, references)


def _as_they_are(
    pipeline: Pipeline, observation: Observation, _config: ReconcileConfig
) -> tuple[Pipeline, Observation]:
    return pipeline, observation


if __name__ == "__main__":
    for module in (preconditions, rollback, rollout, revisions, unfinished):
        mock.patch.object(module, "fingerprints", _without_chart).start()
    mock.patch.object(chain, "in_present_hashes", _as_they_are).start()
    sys.exit(main())
