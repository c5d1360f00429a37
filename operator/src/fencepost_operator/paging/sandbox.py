"""What the process that sends may do: connect where it is allowed, and nothing else that leaves a trace.

A namespace's Secret decides which of Apprise's services runs, and with what; it decides nothing about this process.
The hook sees what Python code does, of any library, before it is done; it cannot be removed.  Refusals are errors of
the network, as those of an address that does not answer: they say nothing of what is there.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fencepost_operator.endpoints import EndpointPolicy, parse_address, parse_entries
from fencepost_operator.paging.delivery import Allowance

_MEMORY: Final = 80 * 2**20
"""Bytes of data: Apprise with all its services has 50 MiB.  A few processes run at once beside the operator."""
_ADDRESSES: Final = 256 * 2**20
"""Bytes of address space: Apprise takes 194 MiB for a moment, most of it never touched, when it starts a thread."""
_FIRST_TO_GO: Final = "1000"
_CPU: Final = 12
"""Seconds."""
_FILES: Final = 64
_HELO: Final = "fencepost.invalid"
METADATA: Final = ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
"""Services of clouds (AWS, Alibaba, Azure, Oracle) that give credentials away, at addresses that are not link-local."""
_REFUSED: Final = (
    "subprocess.", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile", "os.fork", "pty.", "ctypes.",
    "socket.bind", "socket.sendto", "socket.sendmsg", "socket.gethostby", "socket.getnameinfo", "socket.sethostname",
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.lchown", "os.setxattr", "os.kill", "os.add_dll_directory", "os.chdir", "os.utime", "shutil.", "tempfile.",
    "signal.pthread_kill", "ftplib.", "telnetlib.", "imaplib.", "poplib.", "nntplib.", "webbrowser.", "sqlite3.",
    "syslog.", "winreg.", "mmap.", "sys.remote_exec",
)  # fmt: skip
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_READABLE: Final = (
    "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/mime.types", "/etc/localtime",
    "/etc/ssl/", "/etc/pki/", "/usr/share/zoneinfo/", "/usr/share/ca-certificates/", "/dev/null", "/dev/urandom",
)  # fmt: skip


class NotAllowed(OSError):
    """The process may not do that."""


def _python_files() -> tuple[str, ...]:
    """Return where Python's own files are, and the few of the system that a lookup and TLS read."""
    libraries = {str(Path(place).resolve()) + os.sep for place in (*sys.path, sys.prefix, sys.base_prefix) if place}
    return (*sorted(libraries - {os.sep}), *_READABLE)


@dataclass(slots=True)
class Sandbox:
    """Confines this process to what a policy allows, for the rest of its life."""

    policy: EndpointPolicy
    readable: tuple[str, ...] = field(default_factory=_python_files)
    _reached: set[tuple[str, int]] = field(default_factory=set)
    """Addresses and ports of names that are allowed."""
    _lookup: Callable[..., Any] = socket.getaddrinfo

    def enter(self) -> None:
        """Confine the process. What was imported and opened before stays."""
        os.environ.clear()
        # Where memory runs out and the kernel chooses one process, it is this one and not the operator.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
        for limit, most in (
            (resource.RLIMIT_DATA, _MEMORY),
            (resource.RLIMIT_AS, _ADDRESSES),
            (resource.RLIMIT_CPU, _CPU),
            (resource.RLIMIT_NOFILE, _FILES),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(limit, (most, most))
        socket.getaddrinfo = self._getaddrinfo
        # smtplib greets with it, and would look the name of this machine up.
        socket.getfqdn = lambda name="": _HELO  # noqa: ARG005 - as socket's
        sys.addaudithook(self._audit)

    def _getaddrinfo(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:  # noqa: ANN401 - as socket's
        """Look a name up, and note its addresses if each of them is allowed."""
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
        found: list[Any] = self._lookup(host, port, *args, **kwargs)
        places = {(str(address[0]), int(address[1])) for *_, address in found}
        if not places or not all(self.policy.allows(name, address, number) for address, number in places):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        self._reached |= places
        return found

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            self._connect(args[1])
        elif event == "open":
            self._open(args[0], args[2])
        elif event == "socket.__new__":
            if args[1] not in {socket.AF_INET, socket.AF_INET6}:
                raise NotAllowed("no such network")
        elif event.startswith(_REFUSED):
            raise NotAllowed("not allowed")

    def _connect(self, target: object) -> None:
        if not isinstance(target, tuple) or not isinstance(target[0], str) or parse_address(target[0]) is None:
            raise NotAllowed("Connection refused")
        address, port = target[0], int(target[1])
        if (address, port) not in self._reached and not self.policy.allows(address, address, port):
            raise NotAllowed("Connection refused")

    def _open(self, path: object, flags: object) -> None:
        if isinstance(path, int):
            return
        writes = isinstance(flags, int) and flags & _WRITES
        real = os.path.realpath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""
        if writes or not real.startswith(self.readable):
            raise NotAllowed("not allowed")


def policy_of(allowance: Allowance) -> EndpointPolicy:
    """Return where the process may connect; without entries, nothing that is special: see `endpoints`."""
    if allowance.trusted:
        return EndpointPolicy()
    found = (parse_address(text) for text in (*allowance.reserved, *METADATA))
    reserved = frozenset(address for address in found if address is not None)
    return EndpointPolicy(entries=parse_entries(allowance.entries), reserved=reserved, guards=True)
