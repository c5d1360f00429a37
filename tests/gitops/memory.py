"""Memory that runs out: code of an author who is wrong, a process beside the operator, and what healthy ones use."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gitops.alerts import Monitoring
from harness.kubernetes.kubectl import Kubectl, Object
from harness.pipelines import code
from harness.waiting import eventually
from present import present
from testbed.release import RELEASE

LEAKING: Final = Path(__file__).with_name("leaking.py")
CODE: Final = "leaking-code"
_OF_LIMIT: Final = "max(fencepost_{0}_container_{1}_bytes / fencepost_{0}_container_memory_limit_bytes)"
IN_DRIVER: Final = "max(sum by (pod) (rate(jvm_gc_collection_seconds_sum[20s])))"
IN_EXECUTOR: Final = "max(sum by (executor) (rate(fencepost_executor_gc_collection_seconds_sum[20s])))"
SHARES: Final = {
    **{
        f"{words} of a healthy {who}, as a share of its limit": _OF_LIMIT.format(who, figure)
        for who in ("worker", "driver", "operator")
        for figure, words in (("unreclaimable", "memory without page cache"), ("memory", "memory with page cache"))
    },
    "time in garbage collection of a healthy driver": IN_DRIVER,
    "time in garbage collection of a healthy executor": IN_EXECUTOR,
}
HOLD: Final = """
import sys
from fencepost.memory_use import ContainerMemory
held = []
while (here := ContainerMemory.here()).unreclaimable < 0.97 * here.limit:
    held.append(bytearray(b"x") * (1 << 20))
print(len(held), "MiB", flush=True)
sys.stdin.read()
"""
"""Takes what is left of the container's memory, nearly all of it, until its input ends."""


def leaking_code() -> Object:
    """Return the ConfigMap with the example's module and the one that makes mistakes around it."""
    made = code()
    return {**made, "metadata": {"name": CODE}, "data": {**made["data"], LEAKING.name: LEAKING.read_text()}}


def of_leaking(function: str) -> Mapping[str, object]:
    """Return the `job` of a spec that runs a function of that module."""
    return {"entrypoint": f"{LEAKING.stem}:{function}", "codeFrom": {"configMapName": CODE}}


def share(monitor: Monitoring, query: str) -> float | None:
    """Return the number that a query answers with now, None while it has no result."""
    found = monitor.prometheus.query(query)
    return float(found[0]["value"][1]) if found else None


def shares(monitor: Monitoring) -> dict[str, float]:
    """Return what is used now of what the alerts compare, by words, as soon as all of it was scraped."""

    def known() -> dict[str, float] | None:
        found = {words: share(monitor, query) for words, query in SHARES.items()}
        missing = [words for words, value in found.items() if value is None]
        assert not missing, f"Prometheus has no {missing}"
        return {words: round(value, 3) for words, value in found.items() if value is not None}

    return eventually("the figures of healthy containers", known, seconds=120)


@contextmanager
def operator_full(operator: Kubectl) -> Iterator[None]:
    """Keep the memory of the operator's container nearly full. Raises AssertionError when it did not get there."""
    command = [
        *operator.command, f"--namespace={operator.namespace}", "exec", "--stdin", f"deployment/{RELEASE}", "--",
        "python", "-Ic", HOLD,
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holding:
        assert holding.stdout is not None
        try:
            assert holding.stdout.readline().endswith("MiB\n"), "the process did not fill the memory"
            yield
        finally:
            present(holding.stdin).close()
            holding.wait(60)
