"""Helm's post-renderer: it refuses a rendered manifest that is not the expected one, before Helm applies it.

Helm runs this module as a program, gives it the rendered manifest and applies what the program prints.  The program
prints the objects that it checked, written again as JSON, so Helm's YAML parser cannot read them otherwise than they
were read here.  It imports PyYAML and constants alone, because Helm waits for its start.

The chart and the values are Fencepost's own, so a refusal is a fault in them.  This is the last of three barriers: the
parser refuses control characters and merge keys, the chart passes text on as JSON, and nothing that gets past both is
applied.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import yaml

from fencepost_operator.desired.pod_security import CONTAINER_SECURITY, POD_SECURITY

REFUSED: Final = "fencepost-post-renderer: refused: "
"""Begins the one line on standard error that says why."""


class UnexpectedManifestError(ValueError):
    """The rendered manifest is not the expected one; the message names the object and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Which cluster may be applied: where, and under which stem of names (`<pipeline>-g<generation>`).

    `owner` refers to the object that controls all of it, None without one. `service_account` '' is the namespace's
    default one. `pod_annotations` is the `annotations_digest` of what the author wants on each pod.  Pods may mount the
    Secrets that `secrets` names.  With `volume`, the master's files are on a volume of their own.
    """

    namespace: str
    stem: str
    owner: Mapping[str, str] | None = None
    service_account: str = ""
    pod_annotations: str = ""
    secrets: Sequence[str] = ()
    volume: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        """The program, with its arguments, that refuses all objects but those of this cluster."""
        return sys.executable, "-I", "-m", __name__, json.dumps(asdict(self))


_OF_THE_CHART: Final = frozenset({"kubectl.kubernetes.io/default-container", "checksum/config", "checksum/code"})
"""Annotations that the chart itself puts on pods, also instead of the author's of the same name."""


def annotations_digest(annotations: Mapping[str, str]) -> str:
    """Return a digest of a pod's annotations but for the chart's own, '' without any; a process' argument is short."""
    found = {key: text for key, text in annotations.items() if key not in _OF_THE_CHART}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() if found else ""


def checked(manifest: str, expected: Expected) -> str:
    """Return the manifest's objects as JSON documents. Raises UnexpectedManifestError."""
    found = list(objects_of(manifest))
    objects = {_identity(item): item for item in found}
    if len(objects) != len(found):
        raise UnexpectedManifestError("an object is there twice")
    checks = _checks(expected)
    for problem, others in ("unexpected", objects.keys() - checks), ("missing", checks.keys() - objects):
        if others:
            shown = ", ".join(f"{kind} {name[:80]!r}" for _, kind, name in sorted(others)[:5])
            raise UnexpectedManifestError(f"{problem} objects: {shown}")
    for identity, item in objects.items():
        checks[identity](" ".join(identity[1:]), item)
    return "".join(f"---\n{json_line(item)}\n" for item in found)


_VOLUME: Final = "recovery"
"""Ends the name of the claim of the master's volume."""
_Identity: TypeAlias = tuple[str, str, str]
"""apiVersion, kind and name."""


def _identity(item: Mapping[str, Any]) -> _Identity:
    return item["apiVersion"], item["kind"], item["metadata"]["name"]


# What may be applied.  A field that is not listed is refused, because its effect is not known.

_Check: TypeAlias = Callable[[str, Any], None]
"""Takes a path and its value, None where it is absent. Raises UnexpectedManifestError for one that may not be there."""


def _checks(expected: Expected) -> Mapping[_Identity, _Check]:
    """Return the check of each object of a cluster."""
    owners = [{**expected.owner, "controller": True, "blockOwnerDeletion": True}] if expected.owner else None
    metadata = _fields(
        "name labels",
        namespace=_equal(expected.namespace),
        annotations=_fields("streaming.fencepost.dev/config-hash"),
        ownerReferences=_equal(owners),
    )
    service = {"spec": _fields("publishNotReadyAddresses selector ports", clusterIP=_equal("None"))}
    stateful_set = {"spec": _stateful_set(expected)}
    contents: Mapping[_Identity, Mapping[str, _Check]] = {
        ("v1", "Secret", "auth"): {"type": _equal("Opaque"), "data": _anything},
        ("v1", "ConfigMap", "conf"): {"data": _anything},
        ("v1", "Service", "master"): service,
        ("v1", "Service", "worker"): service,
        ("apps/v1", "StatefulSet", "master"): stateful_set,
        ("apps/v1", "StatefulSet", "worker"): stateful_set,
        ("policy/v1", "PodDisruptionBudget", "worker"): {"spec": _anything},
    }
    if expected.volume:
        claim = {"spec": _fields("accessModes storageClassName resources")}
        contents = {**contents, ("v1", "PersistentVolumeClaim", _VOLUME): claim}
    return {
        (version, kind, f"{expected.stem}-{suffix}"): _fields("apiVersion kind", metadata=metadata, **content)
        for (version, kind, suffix), content in contents.items()
    }


def _stateful_set(expected: Expected) -> _Check:
    claims = (f"{expected.stem}-{_VOLUME}",) if expected.volume else ()
    container = _fields(
        "name image imagePullPolicy args envFrom env ports startupProbe readinessProbe livenessProbe resources "
        "volumeMounts",
        securityContext=_equal(CONTAINER_SECURITY),
    )
    pod = _fields(
        "terminationGracePeriodSeconds imagePullSecrets nodeSelector tolerations affinity priorityClassName "
        "topologySpreadConstraints",
        automountServiceAccountToken=_equal(False),
        enableServiceLinks=_equal(False),
        serviceAccountName=_equal(expected.service_account or None),
        securityContext=_equal(POD_SECURITY),
        volumes=_each(
            _fields(
                "name",
                configMap=_fields("name"),
                emptyDir=_fields("sizeLimit"),
                secret=_fields(secretName=_one_of((None, *expected.secrets))),
                persistentVolumeClaim=_fields(claimName=_one_of((None, *claims))),
            )
        ),
        initContainers=_each(container),
        containers=_each(container),
    )
    return _fields(
        "serviceName replicas podManagementPolicy selector",
        template=_fields(
            metadata=_fields("labels", annotations=_annotations(expected.pod_annotations)),
            spec=pod,
        ),
    )


def _anything(_path: str, _found: object) -> None:
    pass


def _equal(wanted: object) -> _Check:
    """Accept one value, compared as JSON: in Python 0 equals False."""
    text = json.dumps(wanted, sort_keys=True)

    def check(path: str, found: object) -> None:
        if json.dumps(found, sort_keys=True) != text:
            raise UnexpectedManifestError(f"{path} is not {text[:200]}")

    return check


def _one_of(wanted: Collection[str | None]) -> _Check:
    def check(path: str, found: object) -> None:
        if found not in wanted:
            raise UnexpectedManifestError(f"{path} is not one of the spec's")

    return check


def _annotations(digest: str) -> _Check:
    def check(path: str, found: Any) -> None:  # noqa: ANN401 - JSON
        if annotations_digest(found or {}) != digest:
            raise UnexpectedManifestError(f"{path} are not those of the spec")

    return check


def _each(part: _Check) -> _Check:
    """Accept a list of what `part` accepts, or none."""

    def check(path: str, found: Any) -> None:  # noqa: ANN401 - JSON
        if not isinstance(found, list | None):
            raise UnexpectedManifestError(f"{path} is not a list")
        for number, item in enumerate(found or ()):
            part(f"{path}.{number}", item)

    return check


def _fields(free: str = "", /, **parts: _Check) -> _Check:
    """Accept an object, or none, of these fields alone; those of `free` may have any value."""
    known = {*free.split(), *parts}

    def check(path: str, found: Any) -> None:  # noqa: ANN401 - JSON
        if not isinstance(found, dict | None):
            raise UnexpectedManifestError(f"{path} is not an object")
        values = found or {}
        if surplus := sorted(values.keys() - known):
            raise UnexpectedManifestError(f"{path} has the unexpected field {surplus[0][:80]!r}")
        for name, part in parts.items():
            part(f"{path}.{name}", values.get(name))

    return check


# Reading.  YAML that versions of YAML read differently is refused: it would not be known what the chart means.

_JSON: Final = re.compile(r"null|true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_AMBIGUOUS: Final = re.compile(
    r"[-+.]?[0-9][0-9a-fxo_:.,eE+-]*|[-+]?\.(inf|nan)|y|n|yes|no|on|off|null|true|false", re.IGNORECASE
)


def objects_of(manifest: str) -> Iterator[dict[str, Any]]:
    """Yield the objects, each with an apiVersion, a kind and a name. Raises UnexpectedManifestError.

    They are of a subset of YAML: no anchors, aliases, tags, merge keys or repeated keys.
    """
    try:
        events = yaml.parse(manifest, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        items = [_value(next(events), events) for event in events if isinstance(event, yaml.DocumentStartEvent)]
    except yaml.YAMLError as error:
        raise UnexpectedManifestError(f"the manifest is not YAML: {error}") from error
    for item in items:
        match item:
            case None:  # a template that renders to nothing
                continue
            case {"apiVersion": str(), "kind": str(), "metadata": {"name": str()}}:
                yield item
            case _:
                raise UnexpectedManifestError("a document is not a Kubernetes object")


def _value(event: Any, events: Iterator[Any]) -> Any:  # noqa: ANN401 - PyYAML is untyped, and JSON is any
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None or event.tag is not None:
        raise UnexpectedManifestError("the manifest has an anchor, an alias or a tag")
    match event:
        case yaml.MappingStartEvent():
            return _mapping(_values(events, until=yaml.MappingEndEvent))
        case yaml.SequenceStartEvent():
            return list(_values(events, until=yaml.SequenceEndEvent))
        case _:
            return event.value if event.style in {"'", '"', "|", ">"} else _plain(event.value)


def _values(events: Iterator[Any], *, until: type) -> Iterator[Any]:
    while not isinstance(event := next(events), until):
        yield _value(event, events)


def _mapping(values: Iterator[Any]) -> dict[str, Any]:
    """Return an object from its keys and values, which alternate."""
    found: dict[str, Any] = {}
    for key in values:
        if not isinstance(key, str) or key == "<<" or key in found:
            raise UnexpectedManifestError(f"the key {str(key)[:80]!r} is not a string, is a merge key, or occurs twice")
        found[key] = next(values)
    return found


def _plain(text: str) -> Any:  # noqa: ANN401 - a scalar of JSON
    if text in {"", "~"}:
        return None
    if _JSON.fullmatch(text):
        return json.loads(text)
    if _AMBIGUOUS.fullmatch(text):
        raise UnexpectedManifestError(f"the unquoted value {text!r} is ambiguous")
    return text


# Writing.

_UNSAFE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def json_line(value: object) -> str:
    """Return JSON on one line that YAML parsers read as JSON parsers do.

    Characters that YAML refuses or takes for line breaks are escaped.  Those beyond the Basic Multilingual Plane are
    not: JSON escapes them as a pair of surrogates, and YAML refuses that.
    """
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", json.dumps(value, ensure_ascii=False))


def main() -> int:
    """Check standard input against the Expected in the argument and print it; return the exit code."""
    expected = Expected(**json.loads(sys.argv[1]))
    try:
        text = checked(sys.stdin.buffer.read().decode(), expected)
    except ValueError as error:
        print(REFUSED + " ".join(str(error).split()), file=sys.stderr)
        return 1
    sys.stdout.buffer.write(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
