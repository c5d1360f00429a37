"""The image kind runs its nodes from: pulled, or built as kind builds its own, of Debian packages and Go modules.

A built one carries our label, a pulled one does not; the cluster asks `NodeImage.built` whether it has to bring its
own pod network, since kind's network plugin is itself an image that only a pulled node image contains.
"""

import shutil
import string
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed import versions
from testbed.engine import KEY_LABEL, Docker
from testbed.home import Home
from testbed.images.base_images import Registry
from testbed.keys import files_key, folder_files
from testbed.process import CommandError, Transcript
from testbed.programs.go_programs import module_folder
from testbed.steps import StepError

_FOLDER: Final = Path(__file__).parents[1]
NODE_FOLDER: Final = _FOLDER / "node"
IMAGE: Final = f"kindest/node:v{versions.KUBERNETES}"
PROGRAMS: Final = ("kubernetes", "etcd", "coredns", "pause", "local-path-provisioner")

COMPONENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes": (
        *(
            f"registry.k8s.io/{program}:v{versions.KUBERNETES}"
            for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
        ),
        f"registry.k8s.io/etcd:{versions.ETCD_TAG}",
    ),
    "coredns": (f"registry.k8s.io/coredns/coredns:{versions.COREDNS_TAG}",),
    "pause": (f"registry.k8s.io/pause:{versions.PAUSE_TAG}",),
}
"""Build target of node/components.Dockerfile to the names kubeadm asks for."""


@dataclass(frozen=True, slots=True)
class NodeImage:
    """Step: the node image."""

    home: Home
    docker: Docker
    registry: Registry
    name: str = "node-image"
    doing: str = f"getting {IMAGE}"
    needs: tuple[str, ...] = ("engine", "debian-trixie", *PROGRAMS)

    def built(self) -> bool:
        """Whether the image was built here rather than pulled."""
        return bool(self.docker.image_key(IMAGE))

    def inputs(self) -> Mapping[str, str]:
        """kind's version (its base files) and the files of the node folder; the programs come in by `needs`."""
        tags = f"{versions.ETCD_TAG} {versions.COREDNS_TAG} {versions.PAUSE_TAG}"
        return {"kind": versions.KIND, "tags": tags, "files": files_key(_FOLDER, folder_files(NODE_FOLDER))}

    def present(self, key: str) -> bool:
        """The image is there, and is a built one of this key or a pulled one."""
        return self.docker.serves(IMAGE, key)

    def make(self, key: str, log: Transcript) -> None:
        """Pull it, else build it."""
        if self.registry.pull(IMAGE, log):
            return
        context = self.home.scratch / "node"
        shutil.rmtree(context, ignore_errors=True)
        self._gather(context, log)
        base = f"fencepost-testbed/node-base:{key}"
        pinned = {"PAUSE_TAG": versions.PAUSE_TAG, "KUBERNETES_VERSION": versions.KUBERNETES}
        self.docker.build(context, NODE_FOLDER / "Dockerfile", key, [base], log, arguments=pinned)
        dockerfile = NODE_FOLDER / "components.Dockerfile"
        for target, images in COMPONENTS.items():
            self.docker.build(context, dockerfile, key, images, log, target=target)
        self._preload(base, key, log)
        names = [name for group in COMPONENTS.values() for name in group]
        log.run([self.docker.client, "rmi", "--no-prune", *names, base])
        shutil.rmtree(context, ignore_errors=True)

    def _gather(self, context: Path, log: Transcript) -> None:
        kind = module_folder(self.home, f"sigs.k8s.io/kind@v{versions.KIND}", log)
        shutil.copytree(kind / "images" / "base" / "files", context / "kind-base", copy_function=shutil.copyfile)
        for folder in (context, *(path for path in context.rglob("*") if path.is_dir())):
            folder.chmod(0o755)  # the module cache is read-only
        shutil.copy2(NODE_FOLDER / "runc-wrapper", context)
        for program in PROGRAMS:
            shutil.copy2((self.home.bin / program).resolve(), context / program)
        storage = string.Template((NODE_FOLDER / "default-storage.yaml").read_text())
        text = storage.safe_substitute(KUBERNETES_VERSION=versions.KUBERNETES)
        (context / "default-storage.yaml").write_text(text)

    def _preload(self, base: str, key: str, log: Transcript) -> None:
        """Import the component images into the node's own containerd and commit that, as kind's own build does."""
        docker = self.docker.client
        container = f"fencepost-testbed-node-{key}"
        log.run([docker, "rm", "--force", container])
        log.run(
            [docker, "run", "--detach", "--privileged", f"--name={container}", "--entrypoint=sleep", base, "infinity"]
        )
        try:
            log.run([docker, "exec", "--detach", container, "containerd"])
            ctr = [docker, "exec", "--interactive", container, "ctr", "--namespace=k8s.io"]
            self._wait_for_containerd([*ctr, "version"], log)
            names = [name for group in COMPONENTS.values() for name in group]
            load = [*ctr, "images", "import", "--all-platforms", "--no-unpack", "--digests", "-"]
            log.pour([docker, "save", *names], [load])
            log.run(
                [
                    docker,
                    "exec",
                    container,
                    "sh",
                    "-c",
                    "pkill -x containerd; while pgrep -x containerd; do sleep 0.1; done",
                ]
            )
            changes = [
                'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]',
                "CMD []",
                f"LABEL {KEY_LABEL}={key}",
            ]
            log.run([docker, "commit", *(f"--change={change}" for change in changes), container, IMAGE])
        finally:
            log.run([docker, "rm", "--force", "--volumes", container])

    @staticmethod
    def _wait_for_containerd(command: list[str], log: Transcript) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                log.run(command)
            except CommandError:
                if time.monotonic() > deadline:
                    raise StepError("containerd does not answer inside the node image") from None
                time.sleep(0.5)
            else:
                return
