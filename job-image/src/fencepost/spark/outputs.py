"""Which output of a transform belongs to which sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fencepost.contract import Reason
from fencepost.errors import BadSpec

_Output = TypeVar("_Output")


def named(result: object, sinks: Sequence[str], kind: type[_Output] | Any) -> dict[str, _Output]:  # noqa: ANN401 - pyarrow is untyped
    """Return {sink: output} of a transform's result, one `kind` or a mapping of them.

    Raises BadSpec when it is neither, or when the names do not match the declared sinks.
    """
    name = kind.__name__
    if isinstance(result, kind):
        if len(sinks) != 1:
            raise BadSpec(
                f"the transform returned one {name}, and {len(sinks)} sinks are declared: {', '.join(sinks)}",
                reason=Reason.TRANSFORM_INVALID,
                remedy=f"Return {{sink name: {name}}}.",
            )
        return {sinks[0]: result}
    if not isinstance(result, Mapping) or not all(isinstance(one, kind) for one in result.values()):
        raise BadSpec(
            f"the transform returned {type(result).__name__}, not a {name} or a mapping of {_plural(name)}",
            reason=Reason.TRANSFORM_INVALID,
        )
    if set(result) != set(sinks):
        raise BadSpec(
            f"the transform returned {_plural(name)} for {sorted(map(str, result))}, the declared sinks are"
            f" {sorted(sinks)}",
            reason=Reason.TRANSFORM_INVALID,
            remedy="Make the mapping's keys the names of spec.sinks.",
        )
    return {sink: result[sink] for sink in sinks}


def _plural(name: str) -> str:
    return f"{name}es" if name.endswith("ch") else f"{name}s"
