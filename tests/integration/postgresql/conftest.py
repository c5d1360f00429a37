"""A PostgreSQL of its own, from Debian's package, in a folder of the test session."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.home import Home
from testbed.process import Transcript
from testbed.programs import host_packages

PROGRAMS = Path("/usr/lib/postgresql")
SETTINGS = Path("/etc/postgresql-common/createcluster.conf")
USER = "postgres"
"""PostgreSQL does not run as root."""


def install(log: Path) -> None:
    """Install Debian's package where it is missing, without the database that it would create and start."""
    if not SETTINGS.exists() and os.geteuid() == 0:
        SETTINGS.parent.mkdir(exist_ok=True)
        SETTINGS.write_text("create_main_cluster = false\n")
    with Home.of_user().held("postgresql.lock", fcntl.LOCK_EX):  # two test processes need it
        host_packages.install(("pg_ctlcluster",), Transcript(log))


def program(name: str) -> str:
    return str(max(PROGRAMS.glob(f"*/bin/{name}")))


def run(*command: str, folder: Path) -> None:
    user = USER if os.geteuid() == 0 else None
    ended = subprocess.run(command, cwd=folder, user=user, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its dsn; it listens on a Unix socket alone."""
    install(tmp_path_factory.mktemp("install") / "log")
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))  # not pytest's: another user must reach it
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam(USER).pw_uid, -1)
    data = folder / "data"
    try:
        run(program("initdb"), "-D", str(data), "-U", USER, "--auth=trust", "--no-sync", folder=folder)
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run(program("pg_ctl"), "-D", str(data), "-l", str(folder / "log"), "-w", "-o", options, "start", folder=folder)
        yield f"host={folder} user={USER} dbname=postgres"
        run(program("pg_ctl"), "-D", str(data), "-m", "immediate", "stop", folder=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
