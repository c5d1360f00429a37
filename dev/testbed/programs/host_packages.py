"""Debian packages the host lacks, installed only when they are needed and only as root."""

import os
import shutil
from collections.abc import Mapping
from typing import Final

from testbed.process import Transcript, variables
from testbed.steps import StepError

PACKAGE_OF: Final[Mapping[str, str]] = {
    "dockerd": "docker.io",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "jq": "jq",
    "openssl": "openssl",
    "cc": "build-essential",
    "pg_ctlcluster": "postgresql",
    "nsenter": "util-linux",
    "tc": "iproute2",
}


def program(name: str) -> str | None:
    """Where a program is on this host, the system's folders included."""
    return shutil.which(name, path=variables()["PATH"])


def install(programs: tuple[str, ...], log: Transcript) -> None:
    """Install the packages of the programs that are missing.  Raises StepError, CommandError."""
    missing = [name for name in programs if program(name) is None]
    if not missing:
        return
    packages = [PACKAGE_OF[name] for name in missing]
    remedy = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if program("apt-get") is None or os.geteuid() != 0:
        raise StepError(f"{', '.join(missing)} missing here, and only root on Debian can install it; as root: {remedy}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    log.run(["apt-get", "update"], env=quiet)
    log.run(["apt-get", "install", "-y", "--no-install-recommends", *packages], env=quiet)
