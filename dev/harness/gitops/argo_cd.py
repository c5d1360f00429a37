"""Argo CD's real application controller and repo server, with Redis, kustomize and a Git repository in a folder."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.kubernetes.kubectl import Kubectl, Object
from harness.processes import free_port, running
from harness.waiting import eventually
from testbed.environment import Environment

APPLICATION: Final = "applications.argoproj.io"
SETTINGS: Final = "argocd-cm"
_LABELS: Final = {"app.kubernetes.io/part-of": "argocd"}
_NO_ACTIONS: Final = "discovery.lua: return {}"
_AUTHOR: Final = ("-c", "user.name=test", "-c", "user.email=test@fencepost.test", "-c", "commit.gpgsign=false")


@dataclass(frozen=True, slots=True)
class Repository:
    """A Git repository in a folder, with one branch."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Repository:
        """Make an empty one."""
        folder.mkdir(parents=True)
        found = cls(folder)
        found._git("init", "--quiet", "--initial-branch=main")
        return found

    @property
    def url(self) -> str:
        """Where Argo CD clones it from."""
        return f"file://{self.folder}"

    def commit(self, files: Mapping[str, str], message: str = "change") -> str:
        """Commit these files as the whole content; return the commit."""
        for old in self._git("ls-files").split():
            (self.folder / old).unlink()
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        self._git("add", "--all")
        self._git(*_AUTHOR, "commit", "--quiet", f"--message={message}")
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.folder, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True, slots=True)
class ArgoCD:
    """The namespace of its own objects."""

    kubectl: Kubectl

    def refresh(self, name: str) -> None:
        """Let it look at the repository now."""
        self.kubectl.run("annotate", APPLICATION, name, "argocd.argoproj.io/refresh=normal", "--overwrite")

    def wait(
        self,
        name: str,
        commit: str,
        *,
        sync: str = "Synced",
        health: str,
        phase: str = "Succeeded",
        seconds: float = 90,
    ) -> Object:
        """Wait until an Application is so about a commit; return its status."""

        def reached() -> Object | None:
            status: Object = (self.kubectl.get(APPLICATION, name) or {}).get("status", {})
            operation = status.get("operationState", {})
            seen = (
                status.get("sync", {}).get("status"),
                status.get("health", {}).get("status"),
                operation.get("phase"),
                operation.get("syncResult", {}).get("revision"),
            )
            resources = [one.get("health") for one in status.get("resources", []) if one.get("health")]
            assert seen == (sync, health, phase, commit), f"{seen}: {operation.get('message')} {resources}"
            return status

        return eventually(f"{name} is {sync} {health} {phase} at {commit[:8]}", reached, seconds=seconds)


def lua(
    environment: Environment,
    given: Object,
    customizations: Mapping[str, str],
    action: str = "",
    *,
    program: str = "argo-cd",
) -> Object:
    """Return what Argo CD's own Lua says of an object: `health`, the `actions` offered, and `object` after `action`."""
    kind = f"{given['apiVersion'].partition('/')[0]}_{given['kind']}"
    health, actions = (f"resource.customizations.{name}.{kind}" for name in ("health", "actions"))
    scripts = {"health": customizations[health], "actions": customizations.get(actions, _NO_ACTIONS)}
    asked = {"object": given, "action": action, **scripts}
    ended = subprocess.run(
        [environment.kubectl.parent / program, "lua"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


@contextmanager
def argo_cd(environment: Environment, folder: Path, *, namespace: str, program: str = "argo-cd") -> Iterator[ArgoCD]:
    """Run Argo CD for Applications in `namespace`; its kinds stay in the cluster."""
    kubectl = Kubectl.of(environment, namespace)
    crds = (environment.kubectl.parent.parent / "share" / f"{program}-crds").resolve()
    kubectl.apply_crds(crds)
    kubectl.apply(*_settings())
    binary = str(environment.kubectl.parent / program)
    redis, repository = (f"127.0.0.1:{free_port()}" for _ in range(2))
    env = _variables(environment, folder)
    with ExitStack() as stack:

        def start(name: str, *command: str, ready: str) -> None:
            log = folder / f"{name}.log"
            stack.enter_context(running(*command, log=log, ready=ready, env=env))

        port = redis.rpartition(":")[2]
        server = [str(environment.kubectl.parent / "redis-server"), "--bind", "127.0.0.1", "--port", port]
        start("redis", *server, "--save", "", "--appendonly", "no", ready=redis)
        metrics = free_port()
        start(
            "repo-server", binary, "repo-server", "--address=127.0.0.1", f"--port={repository.rpartition(':')[2]}",
            "--metrics-address=127.0.0.1", f"--metrics-port={metrics}", "--disable-tls", f"--redis={redis}",
            ready=f"http://127.0.0.1:{metrics}/healthz",
        )  # fmt: skip
        metrics = free_port()
        start(
            "application-controller", binary, "application-controller", f"--namespace={namespace}",
            f"--kubeconfig={environment.kubeconfig}", f"--metrics-port={metrics}", f"--redis={redis}",
            f"--repo-server={repository}", "--repo-server-plaintext", "--app-resync=10",
            ready=f"http://127.0.0.1:{metrics}/healthz",
        )  # fmt: skip
        yield ArgoCD(kubectl)


def _settings() -> tuple[Object, ...]:
    def named(kind: str, name: str, **content: Any) -> Object:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": _LABELS}, **content}

    everything = [{"group": "*", "kind": "*"}]
    return (
        named("ConfigMap", SETTINGS),
        named("Secret", "argocd-secret", stringData={"server.secretkey": "0" * 32}),
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AppProject",
            "metadata": {"name": "default"},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"namespace": "*", "server": "*"}],
                "clusterResourceWhitelist": everything,
            },
        },
    )


def _variables(environment: Environment, folder: Path) -> dict[str, str]:
    folders = {name: folder / name for name in ("tls", "ssh", "gpg", "plugins", "tmp")}
    for made in folders.values():
        made.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": f"{environment.kubectl.parent}:{os.environ['PATH']}",
        "ARGOCD_FAKE_IN_CLUSTER": "true",
        "KUBECONFIG": str(environment.kubeconfig),
        "ARGOCD_GPG_ENABLED": "false",
        # In the Application, as version 2 has it: version 3 keeps it in Redis by default.
        "ARGOCD_APPLICATION_CONTROLLER_PERSIST_RESOURCE_HEALTH": "true",
        "ARGOCD_TLS_DATA_PATH": str(folders["tls"]),
        "ARGOCD_SSH_DATA_PATH": str(folders["ssh"]),
        "ARGOCD_GPG_DATA_PATH": str(folders["gpg"]),
        "ARGOCD_PLUGINSOCKFILEPATH": str(folders["plugins"]),
        "TMPDIR": str(folders["tmp"]),
    }
