"""Base images under their public names: pulled where a registry answers, else stand-ins made from Debian packages.

The stand-ins carry the names of what they stand in for, so no Dockerfile of the project has a switch. Whether a
registry answers is found out once an `up`, by the first pull: an engine that has an answer of a registry says so within
seconds.
"""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from testbed.engine import KEY_LABEL, Docker
from testbed.home import Home
from testbed.keys import files_key
from testbed.process import Transcript, variables
from testbed.programs.host_packages import install
from testbed.steps import StepError
from testbed.versions import GO_MINIMUM

_FOLDER: Final = Path(__file__).parents[1]
DEBIAN_SCRIPT: Final = _FOLDER / "debian" / "make-base.sh"
GOLANG_IMAGE: Final = f"golang:{'.'.join(map(str, GO_MINIMUM))}-bookworm"
GOLANG_DOCKERFILE: Final = _FOLDER / "golang" / "Dockerfile"
_GO_UNNEEDED: Final = ("testdata", "*_test.go")

ANSWER_SECONDS: Final = 15.0
"""How long a registry may take to name an image's layers before it counts as not reachable."""


@dataclass(slots=True)
class Registry:
    """Whether a registry answers; decided once, by the first pull."""

    docker: Docker
    seconds: float = ANSWER_SECONDS
    _answers: bool | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def pull(self, image: str, log: Transcript) -> bool:
        """Pull `image`; False when no registry answers or it has no such image."""
        with self._guard:
            if self._answers is False:
                log.note(f"{image}: no registry answered before, not asked again")
                return False
            heard = self._try(image, log)
            if self._answers is None:
                self._answers = heard
            return heard

    def _try(self, image: str, log: Transcript) -> bool:
        log.note(f"$ docker pull {image}")
        with log.path.open("ab") as output:
            begin = output.tell()
            child = subprocess.Popen(
                [self.docker.client, "pull", image],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=variables(),
            )
            deadline = time.monotonic() + self.seconds
            while child.poll() is None:
                spoke = b"Pulling from" in log.path.read_bytes()[begin:]
                if not spoke and time.monotonic() > deadline:
                    child.kill()
                    child.wait()
                    log.note(f"{image}: no answer in {self.seconds:.0f} s")
                    return False
                time.sleep(0.1)
        return child.returncode == 0


@dataclass(frozen=True, slots=True)
class DebianBase:
    """Step: `debian:<suite>-slim`."""

    home: Home
    docker: Docker
    registry: Registry
    suite: str
    needs: tuple[str, ...] = ("engine",)
    name: str = field(init=False)
    doing: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"debian-{self.suite}")
        object.__setattr__(self, "doing", f"getting {self.image}")

    @property
    def image(self) -> str:
        """The public name."""
        return f"debian:{self.suite}-slim"

    def inputs(self) -> Mapping[str, str]:
        """The suite and the script that makes the stand-in."""
        return {"suite": self.suite, "script": files_key(_FOLDER, [DEBIAN_SCRIPT])}

    def present(self, key: str) -> bool:
        """The image is there, and is a stand-in of this key or no stand-in at all."""
        return self.docker.serves(self.image, key)

    def make(self, key: str, log: Transcript) -> None:
        """Pull it, else debootstrap a stand-in."""
        if self.registry.pull(self.image, log):
            return
        if os.geteuid() != 0:
            raise StepError(f"no registry answers for {self.image}, and a stand-in (debootstrap) needs root")
        install(("debootstrap",), log)
        log.run(
            ["bash", str(DEBIAN_SCRIPT), self.image, self.suite],
            env={
                "DOCKER": self.docker.client,
                "LABEL": f"{KEY_LABEL}={key}",
                "TMPDIR": str(self.home.scratch),
                "LC_ALL": "C.UTF-8",
            },
        )


@dataclass(frozen=True, slots=True)
class GolangBase:
    """Step: the golang image the operator's image may build on; the stand-in carries the testbed's own Go."""

    home: Home
    docker: Docker
    registry: Registry
    name: str = "golang"
    doing: str = f"getting {GOLANG_IMAGE}"
    needs: tuple[str, ...] = ("go", "debian-bookworm")

    def inputs(self) -> Mapping[str, str]:
        """The image's name and its stand-in's Dockerfile."""
        return {
            "image": GOLANG_IMAGE,
            "dockerfile": files_key(_FOLDER, [GOLANG_DOCKERFILE]),
            "without": " ".join(_GO_UNNEEDED),
        }

    def present(self, key: str) -> bool:
        """The image is there, and is a stand-in of this key or no stand-in at all."""
        return self.docker.serves(GOLANG_IMAGE, key)

    def make(self, key: str, log: Transcript) -> None:
        """Pull it, else copy the Go toolchain onto Debian."""
        if self.registry.pull(GOLANG_IMAGE, log):
            return
        root = Path(log.output([str(self.home.bin / "go"), "env", "GOROOT"]).strip())
        context = self.home.scratch / "golang"
        shutil.rmtree(context, ignore_errors=True)
        # Below the root, folders of these names are packages: go/doc is one that Helm needs.
        unneeded = shutil.ignore_patterns(*_GO_UNNEEDED)
        shutil.copytree(root, context / "go", symlinks=True, ignore=unneeded)
        for folder in ("test", "doc"):
            shutil.rmtree(context / "go" / folder, ignore_errors=True)
        self.docker.build(context, GOLANG_DOCKERFILE, key, [GOLANG_IMAGE], log)
        shutil.rmtree(context, ignore_errors=True)
