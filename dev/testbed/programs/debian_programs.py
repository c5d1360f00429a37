"""Programs from Debian packages that are unpacked into the store: nothing is installed, and no root is needed.

Each program gets a script in the bin folder that starts it with what an installed package would find below /usr.
"""

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from testbed.home import Home
from testbed.process import CommandError, Transcript
from testbed.programs.host_packages import program
from testbed.steps import StepError

_BUILT_IN: Final = b"/usr/share/prometheus/alertmanager"
_RELATIVE: Final = b"./" * ((len(_BUILT_IN) - len(b"alertmanager")) // 2) + b"alertmanager"
"""The same folder, from its parent, in as many bytes."""


@dataclass(frozen=True, slots=True)
class DebianPrograms:
    """Step: programs of packages, and of those that they need and the host lacks."""

    home: Home
    name: str
    packages: tuple[str, ...]
    programs: Mapping[str, str]
    """Name in the bin folder to the path in the packages."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Name of a program to the folder in the packages that it is started in."""
    needs: tuple[str, ...] = ()
    doing: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doing", f"unpacking Debian's {', '.join(self.packages)}")

    def inputs(self) -> Mapping[str, str]:
        """The packages by name: their version is the host's Debian's."""
        return {
            "packages": " ".join(self.packages),
            "programs": str(sorted(self.programs.items())),
            "folders": str(sorted(self.folders.items())),
        }

    def present(self, key: str) -> bool:
        """The packages are unpacked and each program's link leads to its script."""
        scripts = self._stored(key) / "bin"
        return all((self.home.bin / name).resolve() == scripts / name for name in self.programs)

    def make(self, key: str, log: Transcript) -> None:
        """Download and unpack them unless the store has them; link the scripts.  Raises StepError, CommandError."""
        stored = self._stored(key)
        if not stored.is_dir():
            scratch = self.home.scratch / f"{self.name}-{key}"
            shutil.rmtree(scratch, ignore_errors=True)
            self._unpack(scratch, log)
            _make_alertmanager_relocatable(scratch)
            (scratch / "bin").mkdir()
            for name in self.programs:
                script = scratch / "bin" / name
                script.write_text(self._script(name))
                script.chmod(0o755)
            scratch.replace(stored)
        for name in self.programs:
            fresh = self.home.scratch / f"link-{name}"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(stored / "bin" / name)
            fresh.replace(self.home.bin / name)

    def _unpack(self, scratch: Path, log: Transcript) -> None:
        if program("apt-get") is None or program("dpkg-deb") is None:
            raise StepError(f"{', '.join(self.packages)} come from Debian packages, which need apt-get")
        downloads = scratch / "downloads"
        downloads.mkdir(parents=True)
        try:
            self._download(downloads, log)
        except CommandError as error:
            if os.geteuid() != 0:
                raise StepError(
                    f"{error.outcome}; apt may not know the packages yet, as root: apt-get update"
                ) from error
            log.run(["apt-get", "update"])
            self._download(downloads, log)
        for package in sorted(downloads.glob("*.deb")):
            log.run(["dpkg-deb", "--extract", str(package), str(scratch)])
        shutil.rmtree(downloads)

    def _download(self, folder: Path, log: Transcript) -> None:
        """Get the packages into `folder`, with those that installing them here would bring along."""
        printed = log.output(
            ["apt-get", "install", "--no-install-recommends", "--print-uris", "--quiet=2", *self.packages]
        )
        brought = {shlex.split(line)[1].partition("_")[0] for line in printed.splitlines() if line.startswith("'")}
        log.run(["apt-get", "download", *sorted(brought | set(self.packages))], cwd=folder)

    def _script(self, name: str) -> str:
        lines = [
            "#!/bin/sh",
            'root=$(dirname "$(dirname "$(readlink -f "$0")")")',
            # PulseAudio's, which Chromium asks for, keeps a part of itself in a folder of its own.
            'for libraries in "$root"/usr/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu/pulseaudio; do',
            '    LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',
            "done",
            "export LD_LIBRARY_PATH",
        ]
        if name in self.folders:
            lines.append(f'cd "$root/{self.folders[name]}" || exit')
        return "\n".join([*lines, f'exec "$root/{self.programs[name]}" "$@"', ""])

    def _stored(self, key: str) -> Path:
        return self.home.store / f"{self.name}-{key}"


def _make_alertmanager_relocatable(root: Path) -> None:
    """Let Debian's Alertmanager find its templates from their parent folder: their path is compiled into it."""
    alertmanager = root / "usr" / "bin" / "prometheus-alertmanager"
    if not alertmanager.is_file():
        return
    content = alertmanager.read_bytes()
    if _BUILT_IN not in content:
        raise StepError(f"prometheus-alertmanager no longer looks for its templates in {_BUILT_IN.decode()}")
    alertmanager.write_bytes(content.replace(_BUILT_IN, _RELATIVE))


def monitoring_programs(home: Home) -> DebianPrograms:
    """Prometheus and Alertmanager, each with its tool. Alertmanager takes absolute paths only."""
    return DebianPrograms(
        home,
        "monitoring",
        ("prometheus", "prometheus-alertmanager"),
        {
            "prometheus": "usr/bin/prometheus",
            "promtool": "usr/bin/promtool",
            "alertmanager": "usr/bin/prometheus-alertmanager",
            "amtool": "usr/bin/amtool",
        },
        folders={"alertmanager": "usr/share/prometheus"},
    )


def redis_program(home: Home) -> DebianPrograms:
    """The cache of Argo CD."""
    return DebianPrograms(home, "redis", ("redis-server",), {"redis-server": "usr/bin/redis-server"})


def registry_program(home: Home) -> DebianPrograms:
    """A registry of images and charts, for a release that is only tried."""
    return DebianPrograms(home, "registry", ("docker-registry",), {"docker-registry": "usr/bin/docker-registry"})


def browser(home: Home) -> DebianPrograms:
    """Chromium without a screen, for the pictures in docs/."""
    return DebianPrograms(
        home, "browser", ("chromium-headless-shell",), {"chromium": "usr/lib/chromium/chromium-headless-shell"}
    )
