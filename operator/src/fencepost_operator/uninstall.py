"""`python -m fencepost_operator.uninstall`: ends with 1 while pipelines exist that the operator would leave behind.

The chart runs it before `helm uninstall` removes anything.  Without an operator the drivers stream on, no driver is
replaced after a failure, and a deletion waits for a finalizer that is not removed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from fencepost_operator import logs
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes.api_server import ApiServer, NotServed
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines
from fencepost_operator.api import ObjectKey
from fencepost_operator.app import kubeconfig_path
from fencepost_operator.errors import PortError
from fencepost_operator.settings import Settings, SettingsError

SHOWN: Final = 20
"""Pipelines that are named."""


def main() -> int:
    """Return the exit code: 0 when nothing would be left behind, else 1 with the reason on standard output."""
    logs.configure(logging.WARNING)
    try:
        refusal = asyncio.run(_refusal(Settings.from_environment(os.environ)))
    except (SettingsError, PortError) as error:
        refusal = (
            f"It is not known whether pipelines exist: {error}. To uninstall all the same: helm uninstall --no-hooks"
        )
    if refusal:
        print(refusal)
    return 1 if refusal else 0


async def _refusal(settings: Settings) -> str:
    """Return why the operator must stay, '' when it need not. Raises PortError."""
    api, clock = await ApiServer.connect(kubeconfig_path()), SystemClock()
    try:
        pipelines = KubernetesPipelines(api, EventRecorder(api=api, clock=clock, instance="uninstall"))
        return refusal(await pipelines.left(settings.watch_namespaces))
    except NotServed:
        return ""  # there can be no object of the kind
    finally:
        await api.close()


def refusal(left: Sequence[ObjectKey]) -> str:
    """Return what to say about the pipelines that would be left behind, '' without one."""
    if not left:
        return ""
    names = ", ".join(str(key) for key in left[:SHOWN]) + (" and others" if len(left) > SHOWN else "")
    how_many = "1 pipeline exists" if len(left) == 1 else f"{len(left)} pipelines exist"
    return (
        f"{how_many}: {names}. Without an operator their drivers are not replaced, and their deletion "
        "waits for a finalizer. Delete them first: kubectl delete streamingpipelines --namespace NAMESPACE --all; "
        "deletionPolicy: Retain keeps their checkpoints. To leave them as they are until an operator is installed "
        "again: helm uninstall --no-hooks"
    )


if __name__ == "__main__":
    sys.exit(main())
