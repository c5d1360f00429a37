"""kubectl with the testbed's own kubeconfig, and objects for an answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from harness.kubernetes.api_server import ApiError, Object, api_server
from harness.waiting import eventually
from testbed.environment import Environment

__all__ = ["Kubectl", "KubectlError", "Object"]

_SELECTORS: Final = {"--selector": "labelSelector", "--field-selector": "fieldSelector"}


class KubectlError(AssertionError):
    """kubectl ended with an error; `stderr` is what it said."""

    def __init__(self, arguments: Sequence[str], stderr: str) -> None:
        super().__init__(f"kubectl {' '.join(arguments)}: {stderr.strip()}")
        self.stderr = stderr


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The pinned kubectl in one namespace, whatever the user's environment says."""

    program: Path
    kubeconfig: Path
    namespace: str

    @classmethod
    def of(cls, environment: Environment, namespace: str) -> Self:
        """Return kubectl for a namespace of the testbed's cluster."""
        return cls(environment.kubectl, environment.kubeconfig, namespace)

    @property
    def command(self) -> tuple[str, ...]:
        """Return the words before those of a subcommand; the namespace is not among them."""
        return str(self.program), f"--kubeconfig={self.kubeconfig}"

    def within(self, namespace: str) -> Kubectl:
        """Return the same kubectl for another namespace."""
        return replace(self, namespace=namespace)

    def run(self, *arguments: str, text: str | None = None, seconds: float = 60) -> str:
        """Return what kubectl prints. Raises KubectlError."""
        command = [*self.command, f"--namespace={self.namespace}", *arguments]
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise KubectlError(arguments, f"no answer within {seconds:.0f} s") from None
        if done.returncode != 0:
            raise KubectlError(arguments, done.stderr)
        return done.stdout

    def get(self, kind: str, name: str) -> Object | None:
        """Return an object, or None when it does not exist. Raises KubectlError."""
        try:
            return api_server(self.kubeconfig).get(kind, self.namespace, name)
        except ApiError as error:
            raise KubectlError(("get", kind, name), str(error)) from None

    def items(self, kind: str, *options: str) -> list[Object]:
        """Return the objects of a kind, or of several with commas between. Raises KubectlError.

        `options` are `--selector=a=b` and `--field-selector=a=b`.
        """
        split = [option.partition("=") for option in options]
        try:
            return api_server(self.kubeconfig).items(
                kind, self.namespace, **{_SELECTORS[option]: value for option, _, value in split}
            )
        except ApiError as error:
            raise KubectlError(("get", kind, *options), str(error)) from None

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """`kubectl apply` as a user does it."""
        self.run("apply", "--filename=-", text="\n---\n".join(json.dumps(manifest) for manifest in manifests))

    def apply_crds(self, folder: Path) -> None:
        """Apply the CRDs of a folder and wait until the API server serves their kinds. Raises NotInTimeError."""
        files = f"--filename={folder}"
        self.run("apply", "--server-side", "--force-conflicts", files)

        def established() -> bool:  # `kubectl wait` fails on a CRD whose conditions are still null, so ask again
            self.run("wait", "--for=condition=Established", files, "--timeout=10s")
            return True

        eventually(f"the CRDs of {folder} are established", established, seconds=60)

    def create(self, manifest: Mapping[str, Any]) -> Object:
        """Create one object and return it as the API server made it."""
        return dict(json.loads(self.run("create", "--filename=-", "--output=json", text=json.dumps(manifest))))

    def patch(self, kind: str, name: str, change: Mapping[str, Any], *, subresource: str | None = None) -> None:
        """Apply a JSON merge patch."""
        options = [f"--subresource={subresource}"] if subresource else []
        self.run("patch", kind, name, "--type=merge", f"--patch={json.dumps(change)}", *options)

    def delete(self, kind: str, *names: str, seconds: float = 120) -> None:
        """Delete objects that may be gone already and wait until they are."""
        self.run("delete", kind, *names, "--ignore-not-found", f"--timeout={seconds:.0f}s", seconds=seconds + 10)
