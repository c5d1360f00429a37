"""A registry on loopback, for as long as a dry run needs one."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from release.version import ReleaseError

ANSWERS_WITHIN: Final = 30.0
_SETTINGS: Final = "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {blobs}}}}}\nhttp: {{addr: '{address}'}}\n"


_KINDS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.index.v1+json",
)


@contextmanager
def local_registry(program: Path, folder: Path) -> Iterator[str]:
    """Run Debian's docker-registry with its blobs in a folder; yield its address. Raises ReleaseError."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = folder / "registry.yml"
    settings.write_text(_SETTINGS.format(blobs=folder / "blobs", address=address))
    with (folder / "registry.log").open("wb") as log:
        child = subprocess.Popen([program, "serve", settings], stdout=log, stderr=log)
        try:
            _await(address, child, Path(log.name))
            yield address
        finally:
            child.terminate()
            child.wait()


def changed_copy(reference: str) -> str:
    """Push a changed image or chart with the signatures of NAME@sha256:…, and return its NAME@sha256:….

    An attacker with the right to push can do that: the tag sha256-abc lists what refers to sha256:abc, in a registry
    without the referrers API. Raises ReleaseError.
    """
    name, _, digest = reference.partition("@")
    kind, text = _manifest(name, digest)
    changed = json.dumps({**json.loads(text), "annotations": {"changed": "yes"}}).encode()
    fresh = f"sha256:{hashlib.sha256(changed).hexdigest()}"
    _push(name, fresh, kind, changed)
    _push(name, fresh.replace(":", "-"), *_manifest(name, digest.replace(":", "-")))
    return f"{name}@{fresh}"


def _manifest(name: str, tag: str) -> tuple[str, bytes]:
    answer = _request(name, tag, headers={"Accept": ", ".join(_KINDS)})
    return answer.headers["Content-Type"], answer.body


def _push(name: str, tag: str, kind: str, manifest: bytes) -> None:
    _request(name, tag, method="PUT", data=manifest, headers={"Content-Type": kind})


@dataclass(frozen=True, slots=True)
class _Answer:
    headers: Message
    body: bytes


def _request(
    name: str, tag: str, *, headers: Mapping[str, str], method: str = "GET", data: bytes | None = None
) -> _Answer:
    address, _, repository = name.partition("/")
    url = f"http://{address}/v2/{repository}/manifests/{tag}"
    try:
        with urlopen(Request(url, data=data, method=method, headers=dict(headers)), timeout=ANSWERS_WITHIN) as answer:
            return _Answer(answer.headers, answer.read())
    except OSError as error:
        raise ReleaseError(f"{method} {url}: {error}") from error


def _await(address: str, child: subprocess.Popen[bytes], log: Path) -> None:
    host, _, port = address.partition(":")
    end = time.monotonic() + ANSWERS_WITHIN
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError as error:
            if time.monotonic() > end or child.poll() is not None:
                raise ReleaseError(f"the registry does not answer: {log.read_text()[-500:]}") from error
            time.sleep(0.1)
        else:
            return
