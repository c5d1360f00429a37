"""Labels and annotations by which the adapters find what belongs to a pipeline."""

from __future__ import annotations

from typing import Final

from fencepost_operator.api import GROUP

PIPELINE: Final = f"{GROUP}/pipeline"
COMPONENT: Final = f"{GROUP}/component"
GENERATION: Final = f"{GROUP}/generation"
EPOCH: Final = f"{GROUP}/epoch"
SPEC_HASH: Final = f"{GROUP}/spec-hash"
CONFIG_HASH: Final = f"{GROUP}/config-hash"
MASTER: Final = "master"
WORKER: Final = "worker"
