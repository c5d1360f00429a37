"""Helm's last words become our errors; its process never outlives the call."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost_operator.adapters.helm.command import Helm, helm_turns, translated
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Busy, Denied, PortError, Rejected, Unreachable

KEY = ObjectKey("t", "a")


@pytest.mark.parametrize(
    ("stderr", "code", "kind", "words"),
    [
        ("Error: Kubernetes cluster unreachable: Get: dial tcp: i/o timeout", 1, Unreachable, "cluster unreachable"),
        ("Error: UPGRADE FAILED: Post: net/http: TLS handshake timeout", 1, Unreachable, "handshake"),
        ("", -9, Unreachable, "signal 9"),
        ("Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress", 1, Unreachable, ""),
        ('Error: secrets is forbidden: User "a" cannot list resource "secrets" in API group ""', 1, Denied, "secrets"),
        ("Error: Unauthorized", 1, Denied, "Unauthorized"),
        ("Error: values don't meet the specifications of the schema(s): workers: Invalid type", 1, Rejected, "workers"),
        ('Error: 1 error occurred: * StatefulSet.apps "a" is invalid: spec: Forbidden', 1, Rejected, "spec: Forbidden"),
        ('Error: pods "a" is forbidden: exceeded quota: small', 1, Rejected, "exceeded quota"),
        ("", 1, Rejected, "code 1"),
    ],
)
def test_last_words_are_translated(stderr: str, code: int, kind: type[PortError], words: str) -> None:
    error = translated(stderr, code=code)
    assert type(error) is kind
    assert words in str(error)


def test_a_denial_names_the_verb_and_the_resource() -> None:
    error = translated('secrets is forbidden: User "a" cannot list resource "secrets" in API group ""', code=1)
    assert error.remedy == "grant the operator's ServiceAccount the verb 'list' on secrets"


def test_warnings_are_no_last_words() -> None:
    error = translated("WARNING: Kubernetes configuration file is group-readable\nError: no chart", code=1)
    assert str(error) == "no chart"


def script(folder: Path, text: str) -> Path:
    path = folder / "helm"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


async def uninstall(helm: Helm, key: ObjectKey = KEY) -> None:
    await helm.change("uninstall", "uninstall", key.name, tenant=key.namespace, namespace="n")


def hanging(folder: Path, *, patience: float = 60.0) -> tuple[Helm, Path]:
    """Return a helm that hangs, and the file with the id of its child."""
    child = folder / "child"
    binary = script(folder, f"sleep 600 & echo $! > {child}; wait")
    return Helm(binary=binary, chart=Path("/chart"), home=folder, patience=patience), child


async def test_a_helm_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    helm, child = hanging(tmp_path, patience=0.5)
    with pytest.raises(Unreachable, match="was killed"):
        await uninstall(helm)
    await assert_ended(int(child.read_text()))


async def test_a_cancelled_call_kills_helm_and_its_children(tmp_path: Path) -> None:
    helm, child = hanging(tmp_path)
    task = asyncio.create_task(uninstall(helm))
    await until(lambda: child.exists() and bool(child.read_text()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await assert_ended(int(child.read_text()))


async def test_helm_takes_turns_among_namespaces_and_a_long_queue_is_not_a_failure_of_helm(tmp_path: Path) -> None:
    done = tmp_path / "done"
    binary = script(tmp_path, f'echo "$2" >> {done}; sleep 0.1')
    helm = Helm(binary=binary, chart=Path("/chart"), home=tmp_path, turns=helm_turns(patience=0.4))
    many = [asyncio.create_task(uninstall(helm, ObjectKey("greedy", f"a{n}"))) for n in range(30)]
    await asyncio.sleep(0)
    await uninstall(helm, ObjectKey("small", "b"))
    assert done.read_text().split().index("b") <= 2
    outcomes = await asyncio.gather(*many, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {type(None), Busy}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)


async def assert_ended(pid: int) -> None:
    """The child is not ours to reap: ended, it is gone, or a zombie."""
    await until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


async def test_a_helm_that_is_not_there_is_rejected(tmp_path: Path) -> None:
    helm = Helm(binary=tmp_path / "absent", chart=Path("/chart"), home=tmp_path)
    with pytest.raises(Rejected, match="cannot be started") as caught:
        await uninstall(helm)
    assert "FENCEPOST_HELM" in caught.value.remedy


async def test_at_most_two_run_at_a_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    binary = script(tmp_path, f"echo + >> {log}; sleep 0.2; echo - >> {log}")
    helm = Helm(binary=binary, chart=Path("/chart"), home=tmp_path)
    await asyncio.gather(*(uninstall(helm, ObjectKey(f"t{n}", "a")) for n in range(6)))
    running = most = 0
    for mark in log.read_text().split():
        running += 1 if mark == "+" else -1
        most = max(most, running)
    assert most <= 2


async def test_a_namespace_with_many_releases_delays_another_by_one_at_most(tmp_path: Path) -> None:
    log = tmp_path / "log"
    binary = script(tmp_path, f'echo "$2" >> {log}; sleep 0.05')
    helm = Helm(binary=binary, chart=Path("/chart"), home=tmp_path)
    loud = [asyncio.create_task(uninstall(helm, ObjectKey("loud", f"a{n}"))) for n in range(10)]
    await asyncio.sleep(0)
    quiet = ObjectKey("quiet", "b")
    await uninstall(helm, quiet)
    await asyncio.gather(*loud)
    assert log.read_text().split().index("b") <= 2
