"""A PostgreSQL of a test session's own, from Debian's package, in a folder that the session removes."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.home import Home
from testbed.process import Transcript
from testbed.programs import host_packages

PROGRAMS = Path("/usr/lib/postgresql")
SETTINGS = Path("/etc/postgresql-common/createcluster.conf")
USER = "postgres"
"""PostgreSQL does not run as root."""


@dataclass(frozen=True, slots=True)
class Server:
    """One that runs: its socket is in `folder`, and it listens at `port` of 127.0.0.1 if that is not None."""

    folder: Path
    port: int | None

    @property
    def dsn(self) -> str:
        """For its superuser, by the socket."""
        port = "" if self.port is None else f" port={self.port}"
        return f"host={self.folder} user={USER} dbname=postgres{port}"

    def control(self, *command: str) -> None:
        """Run pg_ctl, as 'stop', '-m', 'immediate'."""
        place = ("-D", str(self.folder / "data"), "-l", str(self.folder / "log"))
        _run(_program("pg_ctl"), *place, *command, folder=self.folder)

    def start(self, **settings: str) -> None:
        """Start it with settings of postgresql.conf, and wait until it answers."""
        given: Mapping[str, str] = {
            "unix_socket_directories": str(self.folder),
            "listen_addresses": "" if self.port is None else "127.0.0.1",
            **({} if self.port is None else {"port": str(self.port)}),
            **settings,
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in given.items())
        self.control("-w", "-o", options, "start")


@contextmanager
def running(log: Path, *, port: int | None = None, **settings: str) -> Iterator[Server]:
    """Run one for the block, without passwords; `log` is where the installation of Debian's package is logged."""
    _install(log)
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))  # not pytest's: another user must reach it
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam(USER).pw_uid, -1)
    server = Server(folder, port)
    try:
        data = str(folder / "data")
        _run(_program("initdb"), "-D", data, "-U", USER, "--auth=trust", "--no-sync", folder=folder)
        server.start(**settings)
        yield server
        server.control("-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """Return a port of 127.0.0.1 that no process listens at now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def _install(log: Path) -> None:
    """Install Debian's package where it is missing, without the database that it would create and start."""
    if not SETTINGS.exists() and os.geteuid() == 0:
        SETTINGS.parent.mkdir(exist_ok=True)
        SETTINGS.write_text("create_main_cluster = false\n")
    with Home.of_user().held("postgresql.lock", fcntl.LOCK_EX):  # two test processes need it
        host_packages.install(("pg_ctlcluster",), Transcript(log))


def _program(name: str) -> str:
    return str(max(PROGRAMS.glob(f"*/bin/{name}")))


def _run(*command: str, folder: Path) -> None:
    user = USER if os.geteuid() == 0 else None
    ended = subprocess.run(command, cwd=folder, user=user, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
