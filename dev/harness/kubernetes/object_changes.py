"""Objects as they change: the API server's watch, each change as soon as it is stored."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from harness.kubernetes.kubectl import Kubectl, Object

_GRACE_SECONDS = 30.0
"""After the watch's own end: the API server may be away then."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `kind` is ADDED, MODIFIED or DELETED; `before` is None for an object that is new."""

    kind: str
    before: Object | None
    after: Object


def changes(kubectl: Kubectl, path: str, *, seconds: float) -> Iterator[Change]:
    """Yield the changes of the objects below a path of the API from now on, for so many seconds. Raises KubectlError.

    `path` is a collection's, such as /apis/batch/v1/namespaces/shop/jobs. The iteration ends early when the API server
    ends the watch.
    """
    listed = json.loads(kubectl.run("get", f"--raw={path}"))
    known: dict[str, Object] = {one["metadata"]["uid"]: one for one in listed["items"]}
    watch = f"{path}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds={seconds:.0f}"
    with subprocess.Popen([*kubectl.command, "get", f"--raw={watch}"], stdout=subprocess.PIPE, text=True) as running:
        limit = threading.Timer(seconds + _GRACE_SECONDS, running.kill)
        limit.start()
        try:
            assert running.stdout is not None
            for line in running.stdout:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                identity = event["object"]["metadata"]["uid"]
                yield Change(event["type"], known.get(identity), event["object"])
                known[identity] = event["object"]
        finally:
            limit.cancel()
            running.kill()
