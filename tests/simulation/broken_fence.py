"""Rules of the fence, broken on purpose: the simulations of both kinds of pipelines find each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencepost.fence import Fence, FenceRow

Patch = pytest.MonkeyPatch


def commits_are_unconditional(patch: Patch) -> None:
    """Let a driver commit whatever happened to the row."""
    change = Fence._change

    def forced(self: Any, before: Any, after: Any, **how: Any) -> Any:
        seen = self._table.read(self._pipeline)
        if before.driver is not None and after.driver == before.driver and seen.epoch != before.epoch:
            before = seen
            after = replace(after, epoch=seen.epoch, version=seen.version + 1)
        return change(self, before, after, **how)

    patch.setattr(Fence, "_change", forced)


def zombies_write_later(patch: Patch) -> None:
    """Do not move the row's clock at a takeover."""
    usual = Fence._taken

    def taken(self: Fence, before: FenceRow, owner: str) -> FenceRow:
        return replace(usual(self, before, owner), clock=before.clock - 5)

    patch.setattr(Fence, "_taken", taken)
