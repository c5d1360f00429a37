"""Helm's post-renderer: it refuses a rendered manifest that is not the expected one, before Helm applies it.

Helm runs this module as a program, gives it the rendered manifest and applies what the program prints.  The program
prints the objects that it checked, written again as JSON, so Helm's YAML parser cannot read them otherwise than they
were read here.  It imports PyYAML and the standard library alone, because Helm waits for its start.

The chart and the values are Fencepost's own, so a refusal is a fault in them.  This is the last of three barriers: the
parser refuses control characters and merge keys, the chart passes text on as JSON, and nothing that gets past both is
applied.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NoReturn

import yaml

REFUSED: Final = "fencepost-post-renderer: refused: "
"""Begins the one line on standard error that says why."""

_GROUP: Final = "streaming.fencepost.dev"


class UnexpectedManifestError(ValueError):
    """The rendered manifest is not the expected one; the message names the object and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Which cluster may be applied: where, under which stem of names (`<pipeline>-g<generation>`), owned by which uid.

    `owner_uid` None means that the objects have no owner. `service_account` '' is the namespace's default one.
    `pod_annotations` is the `annotations_digest` of what the author wants on each pod.
    """

    namespace: str
    stem: str
    owner_name: str = ""
    owner_uid: str | None = None
    service_account: str = ""
    pod_annotations: str = ""

    def to_json(self) -> str:
        """Return what `main` takes as its argument."""
        return json.dumps(asdict(self))

    @property
    def identities(self) -> frozenset[tuple[str, str, str]]:
        """Return (apiVersion, kind, name) of every object of a cluster."""
        return frozenset((version, kind, f"{self.stem}-{suffix}") for version, kind, suffix in _OBJECTS)


OF_THE_CHART: Final = frozenset({"kubectl.kubernetes.io/default-container", "checksum/config", "checksum/code"})
"""Annotations that the chart itself puts on pods, also instead of the author's of the same name."""


def annotations_digest(annotations: Mapping[str, str]) -> str:
    """Return a digest of a pod's annotations but for the chart's own, '' without any; a process' argument is short."""
    found = {key: text for key, text in annotations.items() if key not in OF_THE_CHART}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() if found else ""


_OBJECTS: Final = (
    ("v1", "Secret", "auth"),
    ("v1", "ConfigMap", "conf"),
    ("v1", "Service", "master"),
    ("v1", "Service", "worker"),
    ("apps/v1", "StatefulSet", "master"),
    ("apps/v1", "StatefulSet", "worker"),
    ("policy/v1", "PodDisruptionBudget", "worker"),
)


def checked(manifest: str, expected: Expected) -> str:
    """Return the manifest's objects as JSON documents. Raises UnexpectedManifestError."""
    objects = list(objects_of(manifest))
    found = [_identity(item) for item in objects]
    if len(found) != len(set(found)):
        raise UnexpectedManifestError("an object is there twice")
    if surplus := sorted(set(found) - expected.identities):
        raise UnexpectedManifestError(f"unexpected objects: {_shown(surplus)}")
    if missing := sorted(expected.identities - set(found)):
        raise UnexpectedManifestError(f"missing objects: {_shown(missing)}")
    for item in objects:
        _Check(f"{item['kind']} {item['metadata']['name']}", expected).item(item)
    return "".join(f"---\n{json_line(item)}\n" for item in objects)


# Reading.  YAML that versions of YAML read differently is refused: it would not be known what Helm applies.

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_AMBIGUOUS: Final = re.compile(
    r"[-+.]?[0-9][0-9a-fxo_:.,eE+-]*|[-+]?\.(inf|nan)|y|n|yes|no|on|off|null|true|false", re.IGNORECASE
)
_WORDS: Final[Mapping[str, Any]] = {"null": None, "~": None, "": None, "true": True, "false": False}


def objects_of(manifest: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a manifest. Raises UnexpectedManifestError."""
    for item in _documents(manifest):
        if item is None:
            continue  # a template that renders to nothing
        if not isinstance(item, dict) or not isinstance(item.get("metadata"), dict):
            raise UnexpectedManifestError("a document is not a Kubernetes object")
        yield item


def _documents(manifest: str) -> Iterator[Any]:
    """Yield each document of a subset of YAML: no anchors, aliases, tags, merge keys or repeated keys."""
    try:
        events = yaml.parse(manifest, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                yield _value(next(events), events)
    except yaml.YAMLError as error:
        raise UnexpectedManifestError(f"the manifest is not YAML: {error}") from error


def _value(event: Any, events: Iterator[Any]) -> Any:  # noqa: ANN401 - PyYAML is untyped, and JSON is any
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None or event.tag is not None:
        raise UnexpectedManifestError("the manifest has an anchor, an alias or a tag")
    match event:
        case yaml.MappingStartEvent():
            return _mapping(events)
        case yaml.SequenceStartEvent():
            return _sequence(events)
        case _:
            return event.value if event.style in {"'", '"', "|", ">"} else _plain(event.value)


def _mapping(events: Iterator[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _value(event, events)
        if not isinstance(key, str) or key == "<<" or key in found:
            raise UnexpectedManifestError(f"the key {str(key)[:80]!r} is not a string, is a merge key, or occurs twice")
        found[key] = _value(next(events), events)
    return found


def _sequence(events: Iterator[Any]) -> list[Any]:
    found: list[Any] = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        found.append(_value(event, events))
    return found


def _plain(text: str) -> Any:  # noqa: ANN401 - a scalar of JSON
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    if _AMBIGUOUS.fullmatch(text):
        raise UnexpectedManifestError(f"the unquoted value {text!r} is ambiguous")
    return text


def _identity(item: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(item.get("apiVersion")), str(item.get("kind")), str(item["metadata"].get("name"))


def _shown(identities: list[tuple[str, str, str]]) -> str:
    return ", ".join(f"{kind} {name[:80]!r}" for _, kind, name in identities[:5])


# Checks.  A field that is not listed is refused, because its effect is not known.

_METADATA: Final = frozenset({"name", "namespace", "labels", "annotations", "ownerReferences"})
_TOP: Final = {
    "Secret": {"type", "data"},
    "ConfigMap": {"data"},
    "Service": {"spec"},
    "StatefulSet": {"spec"},
    "PodDisruptionBudget": {"spec"},
}
_SERVICE: Final = {"clusterIP", "publishNotReadyAddresses", "selector", "ports"}
_STATEFUL_SET: Final = {
    "serviceName", "replicas", "podManagementPolicy", "persistentVolumeClaimRetentionPolicy", "selector", "template",
    "volumeClaimTemplates",
}  # fmt: skip
_POD: Final = {
    "automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds", "securityContext",
    "serviceAccountName", "imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName",
    "topologySpreadConstraints", "initContainers", "containers", "volumes",
}  # fmt: skip
_CONTAINER: Final = {
    "name", "image", "imagePullPolicy", "securityContext", "args", "envFrom", "env", "ports", "startupProbe",
    "readinessProbe", "livenessProbe", "resources", "volumeMounts",
}  # fmt: skip
_POD_SECURITY: Final = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 0,
    "fsGroup": 0,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_VOLUME_SOURCES: Final = {"configMap": {"name"}, "emptyDir": {"sizeLimit"}}
_CLAIM: Final = {"accessModes", "storageClassName", "resources"}
_ANNOTATIONS: Final = {f"{_GROUP}/config-hash"}


@dataclass(frozen=True, slots=True)
class _Check:
    """Checks of one object; `where` names it in messages."""

    where: str
    expected: Expected

    def item(self, item: Mapping[str, Any]) -> None:
        kind: str = item["kind"]
        self.fields("", item, _TOP[kind] | {"apiVersion", "kind", "metadata"})
        self.metadata(item["metadata"])
        match kind:
            case "Secret":
                self.equal("type", item.get("type"), "Opaque")
            case "Service":
                self.fields("spec", item["spec"], _SERVICE)
                self.equal("spec.clusterIP", item["spec"].get("clusterIP"), "None")
            case "StatefulSet":
                self.stateful_set(item["spec"])

    def metadata(self, metadata: Mapping[str, Any]) -> None:
        self.fields("metadata", metadata, _METADATA)
        self.equal("metadata.namespace", metadata.get("namespace"), self.expected.namespace)
        self.fields("metadata.annotations", metadata.get("annotations") or {}, _ANNOTATIONS)
        uid = self.expected.owner_uid
        owner = {
            "apiVersion": f"{_GROUP}/v1alpha1",
            "kind": "StreamingPipeline",
            "name": self.expected.owner_name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        self.equal("metadata.ownerReferences", metadata.get("ownerReferences") or [], [owner] if uid else [])

    def stateful_set(self, spec: Mapping[str, Any]) -> None:
        self.fields("spec", spec, _STATEFUL_SET)
        template = spec.get("template") or {}
        self.fields("spec.template", template, {"metadata", "spec"})
        metadata = template.get("metadata") or {}
        self.fields("spec.template.metadata", metadata, {"labels", "annotations"})
        if annotations_digest(metadata.get("annotations") or {}) != self.expected.pod_annotations:
            self.refuse("spec.template.metadata.annotations are not those of the spec")
        self.pod("spec.template.spec", template.get("spec") or {})
        for claim in spec.get("volumeClaimTemplates") or []:
            self.fields("spec.volumeClaimTemplates.spec", claim.get("spec") or {}, _CLAIM)

    def pod(self, path: str, pod: Mapping[str, Any]) -> None:
        self.fields(path, pod, _POD)
        for name in ("automountServiceAccountToken", "enableServiceLinks"):
            self.equal(f"{path}.{name}", pod.get(name), False)
        self.equal(f"{path}.serviceAccountName", pod.get("serviceAccountName", ""), self.expected.service_account)
        self.equal(f"{path}.securityContext", pod.get("securityContext"), _POD_SECURITY)
        for volume in pod.get("volumes") or []:
            self.fields(f"{path}.volumes", volume, {"name", *_VOLUME_SOURCES})
            for source, fields in _VOLUME_SOURCES.items():
                self.fields(f"{path}.volumes.{source}", volume.get(source) or {}, fields)
        for kind in ("initContainers", "containers"):
            for container in pod.get(kind) or []:
                self.fields(f"{path}.{kind}", container, _CONTAINER)
                self.equal(f"{path}.{kind}.securityContext", container.get("securityContext"), _CONTAINER_SECURITY)

    def fields(self, path: str, found: object, allowed: set[str] | frozenset[str]) -> None:
        if not isinstance(found, Mapping):
            self.refuse(f"{path} is not an object")
        if surplus := sorted(set(found) - allowed):
            self.refuse(f"{path} has the unexpected field {surplus[0][:80]!r}")

    def equal(self, path: str, found: object, wanted: object) -> None:
        if found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
            self.refuse(f"{path} is not {json.dumps(wanted)[:200]}")

    def refuse(self, problem: str) -> NoReturn:
        raise UnexpectedManifestError(f"{self.where}: {problem}")


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
    except (UnexpectedManifestError, ValueError) as error:
        print(REFUSED + " ".join(str(error).split()), file=sys.stderr)
        return 1
    sys.stdout.buffer.write(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
