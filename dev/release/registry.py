"""A registry on loopback, for as long as a dry run needs one."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from release.version import ReleaseError

ANSWERS_WITHIN: Final = 30.0
_SETTINGS: Final = "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {blobs}}}}}\nhttp: {{addr: '{address}'}}\n"


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
