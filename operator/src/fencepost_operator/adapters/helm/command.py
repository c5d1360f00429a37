"""The helm command, in turns, killed when cancelled, its errors translated into ours.

Values go to its standard input, so that they appear neither in a command line nor on a disk.  Helm's hooks bypass
post-renderers, so no hook ever runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from fencepost_operator.adapters.child_process import child_process
from fencepost_operator.adapters.helm.post_renderer import REFUSED, json_line
from fencepost_operator.errors import Denied, PortError, Rejected, Unreachable
from fencepost_operator.turns import LONGEST_WAIT, Turns

_KUBE_VERSION: Final = "1.31.0"
"""What is rendered for, the oldest that the chart takes: a Helm that is built from source says 1.20 itself."""

_GARBAGE: Final = {"GOGC": "off", "GOMEMLIMIT": "64MiB"}
"""Go collects no garbage until there is that much. A helm that renders ends before, with a tenth less CPU time.

One that changes a release may need more, and would collect without a pause."""

_PATIENCE: Final = 180.0
"""Seconds after which a helm that has not ended is killed."""

_UNREACHABLE: Final = re.compile(
    r"cluster unreachable|connection refused|connection reset|i/o timeout|no such host|TLS handshake timeout"
    r"|context deadline exceeded|unexpected EOF|http2: |ServiceUnavailable|server is currently unable|etcdserver"
    r"|another operation \(install/upgrade/rollback\) is in progress"
    r"|too many requests|the server was unable to return a response|Internal error occurred|net/http: ",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(r"cannot (?P<verb>\w+) resource \"(?P<resource>[\w./-]+)\"|\bUnauthorized\b")
_NOISE: Final = re.compile(r"^(WARNING|level=|I\d{4} |W\d{4} )")


def helm_turns(*, patience: float = LONGEST_WAIT) -> Turns:
    """Return turns for two processes at a time, since each takes some 60 MB, and one of a namespace."""
    return Turns("Helm", limit=2, per_tenant=1, patience=patience)


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """Runs one helm binary with one chart, in turns.  Whoever waits too long gets Busy, and keeps its place.

    `kubeconfig` None means the pod's service account.  `timed` is called with the operation and its seconds.
    """

    binary: Path
    chart: Path
    kubeconfig: Path | None = None
    home: Path = Path("/tmp/helm")  # noqa: S108 - the only place a read-only container can write
    patience: float = _PATIENCE
    timed: Callable[[str, float], None] = lambda _operation, _seconds: None
    may_write: Callable[[], None] = lambda: None
    """Asked when the turn has come, which may be minutes after the action began. Raises NotLeading."""
    turns: Turns = field(default_factory=helm_turns)

    async def change(self, operation: str, *arguments: str, tenant: str, namespace: str, stdin: str = "") -> None:
        """Change a release that is kept in `namespace`, in a turn of the pipeline's namespace, which is `tenant`.

        `operation` is the name for `timed`. Raises Unreachable, Denied, Rejected, Busy, NotLeading.
        """
        common = ("--namespace", namespace, "--no-hooks", "--timeout", f"{int(self.patience)}s")
        async with self.turns.turn(tenant):
            self.may_write()
            started = time.monotonic()
            try:
                await self._run(*arguments, *common, stdin=stdin)
            finally:
                self.timed(operation, time.monotonic() - started)

    async def template(
        self, values: Mapping[str, Any], *, name: str = "sample", namespace: str = "sample", tenant: str = ""
    ) -> str:
        """Return what the chart renders for a release and its values, as YAML; nothing is asked of a cluster.

        `namespace` is the release's, `tenant` the pipeline's.  Raises Unreachable, Rejected, Busy.
        """
        words = ("template", name, str(self.chart), "--namespace", namespace, "--kube-version", _KUBE_VERSION)
        async with self.turns.turn(tenant):
            rendering = (*words, "--no-hooks", "--values", "-")
            return await self._run(*rendering, stdin=json_line(values), variables=_GARBAGE)

    async def _run(self, *arguments: str, stdin: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return what helm prints. Raises what its error means."""
        starting = child_process(
            self.binary,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self._environment(), **variables},
        )
        try:
            async with starting as process, asyncio.timeout(self.patience):
                stdout, stderr = await process.communicate(stdin.encode())
        except TimeoutError as error:
            raise Unreachable(f"helm {arguments[0]} did not end in {self.patience:.0f} s and was killed") from error
        except OSError as error:
            remedy = "set FENCEPOST_HELM to the helm binary"
            raise Rejected(f"helm cannot be started: {error}", remedy=remedy) from error
        if process.returncode:
            raise translated(stderr.decode(errors="replace"), code=process.returncode)
        return stdout.decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k.startswith("KUBERNETES_SERVICE_") or k == "PATH"}
        homes = {f"HELM_{part}_HOME": str(self.home / part.lower()) for part in ("CACHE", "CONFIG", "DATA")}
        where = {"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {}
        return {**kept, **homes, **where, "HOME": str(self.home), "HELM_DRIVER": "secret"}


def translated(stderr: str, *, code: int) -> PortError:
    """Return helm's last words as one of our errors; negative codes are signals."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _NOISE.match(line)]
    message = " ".join(lines).removeprefix("Error: ")[-2000:] or f"helm ended with code {code} and no message"
    if code < 0:
        return Unreachable(f"helm was killed by signal {-code}", remedy="give the operator's pod more memory")
    if refusal := re.search(f"^{re.escape(REFUSED)}(.*)$", stderr, re.MULTILINE):
        return refused(refusal[1])
    if denied := _DENIED.search(message):
        verb, resource = denied["verb"], denied["resource"]
        grant = f"grant the operator's ServiceAccount the verb {verb!r} on {resource}"
        return Denied(message, remedy=grant if verb else "restart the operator's pod: its token is refused")
    if _UNREACHABLE.search(message):
        return Unreachable(message, remedy="wait, or check the health of the API server")
    return Rejected(message)


def refused(why: str) -> Rejected:
    """Return the error of a manifest that is not the expected one."""
    return Rejected(
        f"the rendered cluster is not the expected one, nothing was applied: {why[:500]}",
        remedy="check the text fields of spec.cluster and spec.job; if they are right, report this as a defect",
    )
