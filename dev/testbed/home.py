"""Where the testbed keeps what it made, and the small records it reads back.

Everything under `Home.root` is either content-keyed or rewritten by `up`; deleting the folder costs time, nothing
else.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

CACHE_VARIABLE: Final = "FENCEPOST_TESTBED_HOME"


class AlreadyRunningError(Exception):
    """Another `testbed` command holds the lock of this home."""


@dataclass(frozen=True, slots=True)
class Home:
    """The testbed's state and cache folder."""

    root: Path

    @classmethod
    def of_user(cls, variables: Mapping[str, str] = os.environ) -> Self:
        """`$FENCEPOST_TESTBED_HOME`, else `fencepost-testbed` in the user's cache folder (XDG base directories)."""
        if chosen := variables.get(CACHE_VARIABLE):
            return cls(Path(chosen).absolute())
        cache = variables.get("XDG_CACHE_HOME") or str(Path(variables.get("HOME", "~")).expanduser() / ".cache")
        return cls(Path(cache) / "fencepost-testbed")

    @property
    def bin(self) -> Path:
        """Links to the pinned tools; goes first on PATH."""
        return self.root / "bin"

    @property
    def store(self) -> Path:
        """Built programs, one folder per program and content key."""
        return self.root / "store"

    @property
    def share(self) -> Path:
        """Links to files of the store that are not programs, one folder per step."""
        return self.root / "share"

    @property
    def keys(self) -> Path:
        """One record per step: what it last made."""
        return self.root / "keys"

    @property
    def logs(self) -> Path:
        """One file per step, of the last time it was made."""
        return self.root / "logs"

    @property
    def scratch(self) -> Path:
        """Half-made things; emptied when an `up` begins."""
        return self.root / "scratch"

    @property
    def kubeconfig(self) -> Path:
        """The testbed's own kubeconfig; the user's is never read or written."""
        return self.root / "kubeconfig"

    @property
    def kafka_tls(self) -> Path:
        """Kafka's certificates as the cluster has them: ca.crt, and a client's client.crt and client.key."""
        return self.root / "kafka-tls"

    def prepare(self) -> None:
        """Make the folders and drop what a killed `up` left half-made."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in (self.bin, self.store, self.share, self.keys, self.logs, self.scratch):
            folder.mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> dict[str, str]:
        """The record called `name`, empty when it does not exist or cannot be read."""
        try:
            record = json.loads((self.keys / f"{name}.json").read_text())
        except (OSError, ValueError):
            return {}
        return {str(key): str(value) for key, value in record.items()} if isinstance(record, dict) else {}

    def write(self, name: str, record: Mapping[str, str]) -> None:
        """Replace the record called `name`; a reader sees the old one or the new one."""
        self.keys.mkdir(parents=True, exist_ok=True)
        target = self.keys / f"{name}.json"
        fresh = target.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(dict(record), indent=1, sort_keys=True) + "\n")
        fresh.replace(target)

    def forget(self, name: str) -> None:
        """Drop the record called `name`."""
        (self.keys / f"{name}.json").unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home for one command; the kernel lets go of it however the command ends."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunningError(
                    f"another testbed command is at work in {self.root}; wait for it to end"
                ) from None
            yield

    @contextmanager
    def held(self, name: str, kind: int) -> Iterator[None]:
        """Wait for the lock file called `name`, and hold it for the block; `kind` is LOCK_SH or LOCK_EX of fcntl."""
        self.root.mkdir(parents=True, exist_ok=True)  # the doubles' suites also run without a testbed
        with (self.root / name).open("a") as file:
            fcntl.flock(file, kind)
            yield
