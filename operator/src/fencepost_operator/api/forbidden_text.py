"""Text that a spec must not hold, in whatever field it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fencepost_operator.api.fields import CONTROL
from fencepost_operator.api.spec import Violation

FORBIDDEN: Final = re.compile(f"[{CONTROL}\ud800-\udfff]")
"""CONTROL, and halves of surrogate pairs.

The CRD refuses the same; the API server does not check an object again that is older than its CRD.
"""

MERGE_KEY: Final = "<<"
"""YAML takes what is under this key into the mapping around it. No field or label of Kubernetes has the name."""


def forbidden_text(spec: object) -> Iterator[Violation]:
    """Yield a violation for each key and value that holds such a character, and for each MERGE_KEY, at any depth."""
    left: list[tuple[str, object]] = [("spec", spec)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{path}.{_shown(str(key))}", part) for key, part in reversed(value.items())]
            for key in value:
                yield from _violations(f"{path}.{_shown(str(key))}", "its name", str(key))
            if MERGE_KEY in value:
                yield Violation(f"{path}.{MERGE_KEY}", "the name is YAML's merge key", "give it another name")
        elif isinstance(value, list):
            left += [(f"{path}[{index}]", part) for index, part in reversed(list(enumerate(value)))]
        elif isinstance(value, str):
            yield from _violations(path, "it", value)


def _violations(path: str, subject: str, text: str) -> Iterator[Violation]:
    if found := FORBIDDEN.search(text):
        yield Violation(
            path,
            f"{subject} holds the character U+{ord(found[0]):04X}, a line break or a control character",
            "remove the character; text of several lines belongs in a ConfigMap or a Secret",
        )


def printable(text: str) -> str:
    """Return text without what is refused, for a message."""
    return FORBIDDEN.sub("?", text)


def _shown(key: str) -> str:
    """Return a key for a path: bounded, and without the characters that are refused."""
    return FORBIDDEN.sub("?", key)[:100]
