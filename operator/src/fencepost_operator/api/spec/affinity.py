"""The affinity of a pod as in Kubernetes, with lists that are bounded: each pod of a pipeline repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from fencepost_operator.api.model import Model
from fencepost_operator.api.spec.pods import LABEL, LabelKey, LabelText

Weight = Annotated[int, Field(ge=1, le=100)]
NodeOperator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabelRequirement(Model):
    """A requirement on a label of a node."""

    key: LabelKey
    """Key of the label or field."""
    operator: NodeOperator
    """How the values are compared."""
    values: Annotated[tuple[LabelText, ...], Field(max_length=20)] | None = None
    """Values to compare with. Empty for Exists and DoesNotExist; exactly one for Gt and Lt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFieldRequirement(Model):
    """A requirement on a field of a node."""

    key: LabelKey
    """Key of the label or field."""
    operator: NodeOperator
    """How the values are compared."""
    values: Annotated[tuple[Annotated[str, Field(max_length=253), LABEL], ...], Field(max_length=1)] | None = None
    """Values to compare with. Empty for Exists and DoesNotExist; exactly one for Gt and Lt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTerm(Model):
    """Requirements on the node."""

    match_expressions: Annotated[tuple[NodeLabelRequirement, ...], Field(max_length=10)] | None = None
    """Requirements on the labels of a node. All must be met."""
    match_fields: Annotated[tuple[NodeFieldRequirement, ...], Field(max_length=2)] | None = None
    """Requirements on the fields of a node. All must be met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelector(Model):
    """Rules that must be met to schedule the pod."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=10)]
    """Alternatives, one of which must be met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredNode(Model):
    """A rule about nodes, with its weight."""

    weight: Weight
    """Weight of the rule."""
    preference: NodeSelectorTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinity(Model):
    """Rules about nodes."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PreferredNode, ...], Field(max_length=10)] | None
    ) = None
    """Rules that the scheduler prefers to meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequirement(Model):
    """A requirement on a label."""

    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared."""
    values: Annotated[tuple[LabelText, ...], Field(max_length=10)] | None = None
    """Values to compare with. Empty for Exists and DoesNotExist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector(Model):
    """Objects by their labels."""

    match_labels: Annotated[Mapping[Annotated[str, Field(max_length=317)], LabelText], Field(max_length=10)] | None = (
        None
    )
    """Labels that must match."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=5)] | None = None
    """Requirements on labels. All must be met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinityTerm(Model):
    """The other pods and the location."""

    topology_key: Annotated[LabelKey, Field(min_length=1)]
    """Node label whose value identifies a location."""
    label_selector: LabelSelector | None = None
    """The other pods."""
    namespace_selector: LabelSelector | None = None
    """Namespaces of the other pods."""
    namespaces: Annotated[tuple[LabelText, ...], Field(max_length=20)] | None = None
    """Namespaces of the other pods. Defaults to the pipeline's namespace if namespaceSelector is not set either."""
    match_label_keys: Annotated[tuple[LabelKey, ...], Field(max_length=5)] | None = None
    """Keys of labels that must have the same value as on the pod itself."""
    mismatch_label_keys: Annotated[tuple[LabelKey, ...], Field(max_length=5)] | None = None
    """Keys of labels that must have another value than on the pod itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedPodAffinityTerm(Model):
    """A rule about pods, with its weight."""

    weight: Weight
    """Weight of the rule."""
    pod_affinity_term: PodAffinityTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinity(Model):
    """Rules about other pods."""

    required_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PodAffinityTerm, ...], Field(max_length=5)] | None
    ) = None
    """Rules that must be met to schedule the pod."""
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[WeightedPodAffinityTerm, ...], Field(max_length=5)] | None
    ) = None
    """Rules that the scheduler prefers to meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity(Model):
    """Affinity of every pod of the pipeline, as in Kubernetes' pod spec."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    """Rules about pods to run near to."""
    pod_anti_affinity: PodAffinity | None = None
    """Rules about pods to run apart from."""
