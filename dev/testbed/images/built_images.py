"""Images built from Dockerfiles, and getting them into the nodes.

An image carries two tags: a moving `:dev` and its content key. In a node the pair is compared by digest, so a node is
only loaded when it lacks this very image, and all that a node lacks is sent in one archive, where shared layers go
once.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.cluster import NODES
from testbed.engine import KEY_LABEL, Docker
from testbed.home import Home
from testbed.keys import files_key, source_files
from testbed.process import Transcript
from testbed.steps import StepError

DEV_TAG: Final = "dev"
REPOSITORY: Final = Path(__file__).resolve().parents[3]

LOAD_LIMIT: Final = 900
"""Seconds for one archive. The job image, the largest, took 40 to 80 on two CPUs."""

EARLIER_BUILDS: Final = 2
"""Builds that stay beside the newest, so that a step back builds nothing. One takes up to 0.9 GB, in each node too."""

_MADE_TAG: Final = re.compile(r"(id-)?[0-9a-f]{16}")
"""A content key, or the tag of `content_tag`; every other tag is a user's."""

_loading = threading.Lock()
"""Between the steps of one command; two commands exclude each other by `Home.locked`."""


def content_tag(docker: Docker, image: str) -> str:
    """`image` under the tag that names its id, made if it is not there.  Raises StepError without such an image."""
    identity = docker.image_id(image)
    if identity is None:
        raise StepError(f"local image {image} not found: build it first")
    tagged = f"{repository_of(image)}:id-{identity.removeprefix('sha256:')[:16]}"
    docker.ask("tag", image, tagged)
    return tagged


def repository_of(image: str) -> str:
    """An image's name without its tag."""
    return image.rpartition(":")[0] if ":" in image.rpartition("/")[2] else image


def qualified(image: str) -> str:
    """The full name containerd knows a Docker image by (as `docker save` and `ctr images import` spell it)."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def node_digests(docker: Docker, node: str) -> dict[str, str]:
    """Image name to manifest digest in a node's containerd."""
    listing = docker.ask("exec", node, "ctr", "--namespace=k8s.io", "images", "list") or ""
    rows = [line.split() for line in listing.splitlines()[1:]]
    return {row[0]: row[2] for row in rows if len(row) > 2}


def lacking(docker: Docker, nodes: Iterable[str], images: Sequence[str]) -> dict[str, list[str]]:
    """Node to those of `images` that it lacks or has another version of; nodes that have all are left out."""
    tagged = {image: content_tag(docker, image) for image in images}
    found: dict[str, list[str]] = {}
    for node in nodes:
        digests = node_digests(docker, node)
        for image, content in tagged.items():
            digest = digests.get(qualified(content))
            if digest is None or digests.get(qualified(image)) != digest:
                found.setdefault(node, []).append(image)
    return found


def load(docker: Docker, nodes: Sequence[str], images: Sequence[str], log: Transcript) -> None:
    """Send `images` to those of `nodes` that lack one.  Raises StepError, CommandError.

    One archive at a time. containerd lets one import at a time write a layer, and an archive is read no faster than its
    slowest node takes it: two archives with a common layer, each first at another node, would wait for each other.
    """
    with _loading:
        _load(docker, nodes, images, log)


def _load(docker: Docker, nodes: Sequence[str], images: Sequence[str], log: Transcript) -> None:
    wanting = lacking(docker, nodes, images)
    if not wanting:
        return
    missing = {image for node in wanting.values() for image in node}
    names = [name for image in images if image in missing for name in (image, content_tag(docker, image))]
    receive = [
        [docker.client, "exec", "-i", node, "ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "-"]
        for node in wanting
    ]
    log.pour([docker.client, "save", *names], receive, seconds=LOAD_LIMIT)
    for node in wanting:
        remove_from_node(docker, node, {repository_of(image) for image in images}, log)


def remove_earlier_builds(docker: Docker, repository: str, log: Transcript) -> None:
    """Remove all builds of `repository` but the one tagged `:dev` and the newest."""
    tags = _made_tags(docker, repository)
    newest = list(dict.fromkeys(tags.values()))[: 1 + EARLIER_BUILDS]
    kept = {*newest, docker.image_id(f"{repository}:{DEV_TAG}")}
    if names := [name for name, identity in tags.items() if identity not in kept]:
        log.note(f"removing {len(names)} tags of earlier builds of {repository}")
        docker.ask("rmi", *names, seconds=300)


def _made_tags(docker: Docker, repository: str) -> dict[str, str]:
    """Name to id of the builds that were made here, the newest first."""
    made = f"--filter=label={KEY_LABEL}"
    listing = docker.ask("images", "--no-trunc", made, "--format", "{{.Tag}} {{.ID}}", repository) or ""
    rows = [line.split() for line in listing.splitlines()]
    return {f"{repository}:{tag}": identity for tag, identity in rows if _MADE_TAG.fullmatch(tag)}


def remove_from_node(docker: Docker, node: str, repositories: Iterable[str], log: Transcript) -> None:
    """Remove builds that the engine no longer has: a kind node's kubelet collects no image.

    The kubelet's names of images, their ids, keep an image whose tags are removed: they go with its last tag.
    """
    digests = node_digests(docker, node)
    gone = [name for repository in repositories for name in _removed_tags(docker, repository, digests)]
    tagged = {digest for name, digest in digests.items() if name not in gone and not name.startswith("sha256:")}
    gone += [name for name, digest in digests.items() if name.startswith("sha256:") and digest not in tagged]
    if gone:
        log.note(f"removing {len(gone)} names of earlier builds from {node}")
        docker.ask("exec", node, "ctr", "--namespace=k8s.io", "images", "remove", *gone, seconds=300)


def _removed_tags(docker: Docker, repository: str, names: Iterable[str]) -> list[str]:
    """Those of a node's `names` that are builds of `repository` which the engine no longer has.

    None where it names no build: then it has not answered, since the newest one always stays.
    """
    stays = {qualified(name) for name in _made_tags(docker, repository)}
    made = re.compile(f"{re.escape(qualified(repository))}:{_MADE_TAG.pattern}")
    return [name for name in names if stays and made.fullmatch(name) and name not in stays]


@dataclass(frozen=True, slots=True)
class Image:
    """Step: one image built from a Dockerfile of this repository."""

    docker: Docker
    name: str
    repository: str
    """The image's name without a tag."""
    dockerfile: Path
    context: Path
    sources: tuple[str, ...]
    """Paths below the repository's root that go into the image."""
    needs: tuple[str, ...]
    keys: Callable[[], Mapping[str, str]]
    """The runner's keys so far: where another step finds this image's content tag."""

    @property
    def doing(self) -> str:
        """For the console."""
        return f"building {self.repository}"

    @property
    def tag(self) -> str:
        """The moving name."""
        return f"{self.repository}:{DEV_TAG}"

    @property
    def content_name(self) -> str:
        """The name that changes with the content; known once the step is done."""
        return f"{self.repository}:{self.keys()[self.name]}"

    def inputs(self) -> Mapping[str, str]:
        """The files, ignored ones left out."""
        files = source_files(REPOSITORY, [*self.sources, self._relative(), ".dockerignore"])
        return {"files": files_key(REPOSITORY, files), "repository": self.repository}

    def present(self, key: str) -> bool:
        """Both tags are on the image of this key."""
        keyed = f"{self.repository}:{key}"
        if self.docker.image_key(keyed) != key:
            return False
        return self.docker.image_id(keyed) == self.docker.image_id(self.tag)

    def make(self, key: str, log: Transcript) -> None:
        """Build and tag it; only tag it where it was built before."""
        keyed = f"{self.repository}:{key}"
        if self.docker.image_key(keyed) == key:
            log.run([self.docker.client, "tag", keyed, self.tag])
            return
        if not self.dockerfile.is_file():
            raise StepError(f"{self._relative()} does not exist yet, and {self.tag} is built from it")
        self.docker.build(self.context, self.dockerfile, key, [keyed, self.tag], log)
        remove_earlier_builds(self.docker, self.repository, log)

    def _relative(self) -> str:
        return self.dockerfile.relative_to(REPOSITORY).as_posix()


@dataclass(frozen=True, slots=True)
class Loaded:
    """Step: images are in the nodes that run them."""

    docker: Docker
    name: str
    images: tuple[Image, ...]
    nodes: tuple[str, ...]
    needs: tuple[str, ...]

    @property
    def doing(self) -> str:
        """For the console."""
        return f"loading {', '.join(image.repository for image in self.images)} into {', '.join(self.nodes)}"

    def inputs(self) -> Mapping[str, str]:
        """Which images go where."""
        return {"images": " ".join(image.tag for image in self.images), "nodes": " ".join(self.nodes)}

    def present(self, key: str) -> bool:  # noqa: ARG002
        """No node lacks one."""
        return not lacking(self.docker, self.nodes, self._names())

    def make(self, key: str, log: Transcript) -> None:  # noqa: ARG002
        """Load them."""
        load(self.docker, self.nodes, self._names(), log)

    def _names(self) -> list[str]:
        return [name for image in self.images for name in (image.tag, image.content_name)]


def load_one(home: Home, image: str, log: Transcript) -> None:
    """Load any local image into every worker.  Raises StepError, CommandError."""
    load(Docker(home), NODES[1:], [image], log)


def remove_made(docker: Docker, label: str, log: Transcript) -> None:
    """Remove every image that carries `label`: the ones made here, never a pulled one."""
    for _ in range(2):  # an image goes only after those built on it
        listing = docker.ask("images", "--all", "--quiet", "--no-trunc", f"--filter=label={label}") or ""
        if images := sorted(set(listing.split())):
            docker.ask("rmi", "--force", *images, seconds=300)
    log.note(docker.ask("image", "prune", "--force", "--filter", f"label={label}", seconds=300) or "")
