"""The container engine: the Docker that runs already, else one started here.

A Docker that runs is used as it is. Where none does and we are root, dockerd is started (docker.io is installed first
when it is missing), detached, and its process id recorded, so that `down` stops that one and no other.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.home import Home
from testbed.process import Transcript, probe, variables
from testbed.programs.host_packages import install, program
from testbed.steps import StepError

KEY_LABEL: Final = "fencepost.testbed.key"
"""The label of every image made here: the content key of what it was made from."""

CAP_SYS_RESOURCE: Final = 24
"""Bit in a capability mask (include/uapi/linux/capability.h)."""

SECRETS: Final[Mapping[str, str]] = {
    "ca": "/etc/ssl/certs/ca-certificates.crt",
    "cacerts": "/etc/ssl/certs/java/cacerts",
}
"""The host's trust stores, offered to builds: a Dockerfile that mounts them works behind a private CA too."""

BUILD_CACHE: Final = {"builder": {"gc": {"enabled": True, "defaultKeepStorage": "6GB"}}}
"""Docker keeps a tenth of the disk. Both images and both data services take 4 GB of it, and rarely change together."""

_SETTINGS: Final = Path("/etc/docker/daemon.json")
"""A machine's own settings of dockerd, which are left alone."""

_FOLDER: Final = Path(__file__).parent
RUNTIME_WRAPPER: Final = _FOLDER / "node" / "runc-wrapper"


def lacks_sys_resource(status: Path = Path("/proc/self/status")) -> bool:
    """Whether CAP_SYS_RESOURCE is missing from the bounding set, so that plain `docker run --privileged` fails."""
    for line in status.read_text().splitlines():
        if line.startswith("CapBnd:"):
            return not (int(line.split()[1], 16) >> CAP_SYS_RESOURCE) & 1
    return False


def _candidates() -> list[str]:
    folders = variables()["PATH"].split(":")
    found = [Path(folder) / "docker" for folder in folders if folder]
    return [str(path) for path in dict.fromkeys(found) if os.access(path, os.X_OK) and path.is_file()]


def building_client() -> str | None:
    """A Docker client that builds with BuildKit: one with buildx, or one older than 23, which has BuildKit built in."""
    for client in _candidates():
        if probe([client, "buildx", "version"]) is not None:
            return client
        version = (probe([client, "--version"]) or "").removeprefix("Docker version ")
        if version[:2].isdigit() and int(version[:2]) < 23:
            return client
    return None


def process_start(pid: int) -> str | None:
    """When a process began, in clock ticks since boot (field 22 of stat, proc(5)): with its id, this identifies it.

    None for one that has ended, also when its parent has not asked for its exit code yet.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except (OSError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class Docker:
    """The Docker client, through the link in the testbed's bin folder."""

    home: Home

    @property
    def client(self) -> str:
        """The chosen client's path."""
        return str(self.home.bin / "docker")

    def answers(self) -> bool:
        """Whether an engine answers."""
        return probe([self.client, "version", "--format", "{{.Server.Version}}"], seconds=10) is not None

    def ask(self, *arguments: str, seconds: float = 30) -> str | None:
        """What a docker command prints, None when it fails."""
        return probe([self.client, *arguments], seconds=seconds)

    def image_id(self, image: str) -> str | None:
        """The id of a local image."""
        return (self.ask("image", "inspect", "--format", "{{.Id}}", image) or "").strip() or None

    def image_key(self, image: str) -> str | None:
        """The content key a local image was made for; "" for an image that was not made here, None for no image."""
        labels = self.ask("image", "inspect", "--format", "{{json .Config.Labels}}", image)
        return None if labels is None else str((json.loads(labels) or {}).get(KEY_LABEL, ""))

    def serves(self, image: str, key: str) -> bool:
        """Whether `image` is there and is either someone else's (pulled) or the one made for `key`."""
        return self.image_key(image) in {"", key}

    def build(
        self,
        context: Path,
        dockerfile: Path,
        key: str,
        tags: Sequence[str],
        log: Transcript,
        *,
        target: str | None = None,
        arguments: Mapping[str, str] | None = None,
    ) -> None:
        """Build an image with BuildKit, label it with its key and tag it.  Raises CommandError."""
        options = [f"--tag={tag}" for tag in tags]
        options += [f"--build-arg={name}={value}" for name, value in (arguments or {}).items()]
        options += [f"--secret=id={name},src={file}" for name, file in SECRETS.items() if Path(file).is_file()]
        options += [f"--target={target}"] if target else []
        log.run(
            [
                self.client, "build", "--progress=plain", f"--file={dockerfile}", f"--label={KEY_LABEL}={key}",
                *options, str(context),
            ],
            env={"DOCKER_BUILDKIT": "1"},
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Engine:
    """Step: an engine answers."""

    home: Home
    name: str = "engine"
    doing: str = "starting Docker"
    needs: tuple[str, ...] = ()

    def inputs(self) -> Mapping[str, str]:
        """Nothing: what is built does not depend on which engine built it."""
        return {}

    def present(self, key: str) -> bool:  # noqa: ARG002
        """An engine answers the client that was chosen."""
        return Path(Docker(self.home).client).exists() and Docker(self.home).answers()

    def make(self, key: str, log: Transcript) -> None:  # noqa: ARG002
        """Choose a client; start dockerd unless one runs."""
        if self._choose_client() and Docker(self.home).answers():
            return
        install(("dockerd", "iptables", "jq"), log)
        if not self._choose_client():
            raise StepError("no Docker client here can build with BuildKit; install the buildx plugin or docker.io")
        if Docker(self.home).answers():
            return
        self._start(log)

    def _choose_client(self) -> bool:
        client = building_client()
        if client is None:
            return False
        link = self.home.bin / "docker"
        link.unlink(missing_ok=True)
        link.symlink_to(client)
        return True

    def _start(self, log: Transcript) -> None:
        if os.geteuid() != 0:
            raise StepError("no Docker engine answers and only root can start one; start Docker, or run this as root")
        command = [program("dockerd") or "dockerd"]
        if lacks_sys_resource():
            wrapper = self.home.root / "runc-wrapper"
            wrapper.write_bytes(RUNTIME_WRAPPER.read_bytes())
            wrapper.chmod(0o755)
            command += [f"--add-runtime=fencepost={wrapper}", "--default-runtime=fencepost"]
        if not _SETTINGS.exists():
            settings = self.home.root / "dockerd.json"
            settings.write_text(json.dumps(BUILD_CACHE))
            command += [f"--config-file={settings}"]
        output = self.home.logs / "dockerd.log"
        log.note(f"$ {' '.join(command)} >{output}")
        with output.open("ab") as stream:
            daemon = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True, env=variables()
            )
        self.home.write("dockerd", {"pid": str(daemon.pid), "start": process_start(daemon.pid) or ""})
        deadline = time.monotonic() + 60
        while not Docker(self.home).answers():
            if daemon.poll() is not None or time.monotonic() > deadline:
                lines = output.read_text(errors="replace").splitlines()[-15:]
                log.note("\n".join(lines))
                raise StepError(f"dockerd did not come up; its log is {output}")
            time.sleep(0.3)


def was_started(home: Home) -> bool:
    """Whether a dockerd was ever started here, running or not: its images can be reached by starting it again."""
    return bool(home.read("dockerd"))


def stop(home: Home) -> bool:
    """Stop the dockerd that was started here; False when it does not run."""
    record = home.read("dockerd")
    if record:
        home.write("dockerd", {"pid": "0"})
    pid = int(record.get("pid", "0"))
    if pid == 0 or not record.get("start") or process_start(pid) != record["start"]:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while process_start(pid) == record["start"] and time.monotonic() < deadline:
        time.sleep(0.2)
    return True
