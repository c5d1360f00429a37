"""Names of all that the operator makes. A name carries what must never be confused: the epoch, the generation."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from fencepost_operator.api import ObjectKey

MASTER_PORT: Final = 7077
_RELEASE_NAME: Final = 53
"""Characters that Helm admits."""
_DIGEST: Final = 26
"""Digits in base32."""


def job_name(pipeline: str, epoch: int) -> str:
    """Return the name of the driver Job of an epoch."""
    return f"{pipeline}-run-{epoch}"


def release_name(key: ObjectKey) -> str:
    """Return the name of the Helm release of a pipeline's cluster.

    All releases are in the operator's namespace, so the name carries a hash of the pipeline's namespace and name: 130
    bits of it, in base32, so that no pair of another namespace with the same name can be found.  Helm admits 53
    characters; a longer name of a pipeline is cut.
    """
    hashed = hashlib.sha256(f"{key.namespace}/{key.name}".encode()).digest()
    digest = base64.b32encode(hashed).decode().lower()[:_DIGEST]
    return f"{key.name[: _RELEASE_NAME - _DIGEST - 1].rstrip('-')}-{digest}"


def cluster_name(pipeline: str, generation: int) -> str:
    """Return the stem of the names of everything in one generation of the cluster."""
    return f"{pipeline}-g{generation}"


def auth_secret_name(pipeline: str, generation: int) -> str:
    """Return the name of the Secret that only one generation's members know."""
    return f"{cluster_name(pipeline, generation)}-auth"


def master_url(pipeline: str, generation: int, *, namespace: str, cluster_domain: str) -> str:
    """Return the Spark master's URL, by the stable name of the StatefulSet's only pod."""
    master = f"{cluster_name(pipeline, generation)}-master"
    return f"spark://{master}-0.{master}.{namespace}.svc.{cluster_domain}:{MASTER_PORT}"


def fence_key(scope: str, key: ObjectKey) -> str:
    """Return the key of a pipeline's fence row."""
    return f"{scope}/{key}"


def sign_key(fence_key: str, cluster_uid: str) -> str:
    """Return the partition of `fence_progress` for the signs of life of a Kubernetes cluster's operator.

    No pipeline's key has a `#`.
    """
    return f"{fence_key}#cluster-{cluster_uid}"


def fence_owner(cluster_uid: str, uid: str) -> str:
    """Return the owner that a fence row names: the Kubernetes cluster's uid and the object's."""
    return f"{cluster_uid}/{uid}"
