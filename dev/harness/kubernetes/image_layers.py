"""Another image in a node: one that the node holds, with a layer of files on top.

Only the layer is sent. An archive with all layers of the job image would take a minute.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.kubernetes.nodes import NodeError, Nodes
from testbed.images.built_images import qualified

_CTR: Final = ("ctr", "--namespace=k8s.io")
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_NAME: Final = "io.containerd.image.name"


@dataclass(frozen=True, slots=True)
class _Blob:
    """Content, and how a manifest names it."""

    kind: str
    content: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    def described(self, **more: Any) -> dict[str, Any]:
        return {"mediaType": self.kind, "digest": self.digest, "size": len(self.content), **more}


def add_files(nodes: Nodes, node: str, image: str, name: str, files: Mapping[str, str]) -> None:
    """Give a node the image under another name, with these files by their paths in it. Raises NodeError."""
    manifest = _manifest(nodes, node, image)
    config = _content(nodes, node, manifest["config"]["digest"])
    layer = _Blob(_LAYER, _archive({path: text.encode() for path, text in files.items()}))
    config["rootfs"]["diff_ids"].append(layer.digest)
    config.setdefault("history", []).append({"created_by": "files of a test"})
    made = _Blob(manifest["config"]["mediaType"], json.dumps(config).encode())
    described = {**manifest, "config": made.described(), "layers": [*manifest["layers"], layer.described()]}
    top = _Blob(manifest.get("mediaType", _MANIFEST), json.dumps(described).encode())
    index = {"schemaVersion": 2, "manifests": [top.described(annotations={_NAME: qualified(name)})]}
    _import(
        nodes,
        node,
        _archive(
            {
                "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
                "index.json": json.dumps(index).encode(),
                **{f"blobs/sha256/{blob.digest.partition(':')[2]}": blob.content for blob in (layer, made, top)},
            }
        ),
    )


def _manifest(nodes: Nodes, node: str, image: str) -> dict[str, Any]:
    """Return the manifest of an image that is for one platform."""
    rows = [line.split() for line in nodes.run(node, *_CTR, "images", "list").splitlines()]
    digests = [row[2] for row in rows if row[0] == qualified(image)]
    if not digests:
        raise NodeError(f"{node} has no image {image}")
    found = _content(nodes, node, digests[0])
    if "manifests" in found:
        real = [one for one in found["manifests"] if one.get("platform", {}).get("os") != "unknown"]
        return _content(nodes, node, real[0]["digest"])
    return found


def _content(nodes: Nodes, node: str, digest: str) -> dict[str, Any]:
    return dict(json.loads(nodes.run(node, *_CTR, "content", "get", digest)))


def _archive(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def _import(nodes: Nodes, node: str, archive: bytes) -> None:
    words = [nodes.docker, "exec", "--interactive", node, *_CTR, "images", "import", "-"]
    done = subprocess.run(words, input=archive, capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        raise NodeError(f"{' '.join(words)}: code {done.returncode}: {done.stderr.decode().strip()}")
