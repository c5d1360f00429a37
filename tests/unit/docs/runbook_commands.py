"""The commands of the runbooks, as a reader finds them there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def commands(pages: Iterable[Path]) -> list[str]:
    """Return each command of these pages once, from blocks and from prose."""
    found: dict[str, None] = {}
    for page in pages:
        text = page.read_text().replace("\\\n", "")
        blocks = re.findall(r"^ *\$ (.+?)(?: +#.*)?$", text, re.MULTILINE)
        # Fewer than four words, such as `kubectl logs --previous`, name a command and are none.
        prose = re.findall(
            r"`((?:kubectl|fencepost|promtool)(?:\s+[^`\s]+){3,})`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        )
        found.update(dict.fromkeys(re.sub(r"\s+", " ", command) for command in (*blocks, *prose)))
    return list(found)


def kafka_commands(pages: Iterable[Path]) -> list[str]:
    """Return each command of Kafka's own scripts once; a script's name alone is none."""
    return _spans(pages, r"`(kafka-[a-z-]+\.sh\s[^`]+)`")


def statements(pages: Iterable[Path]) -> list[str]:
    """Return each CQL statement of these pages once."""
    return _spans(pages, r"`((?:SELECT|ALTER) [^`]+? (?:FROM|WITH) [^`]+)`")


def _spans(pages: Iterable[Path], pattern: str) -> list[str]:
    found: dict[str, None] = {}
    for page in pages:
        spans = re.findall(pattern, page.read_text())
        found.update(dict.fromkeys(re.sub(r"\s+", " ", span) for span in spans))
    return list(found)


def filled(command: str, values: dict[str, str]) -> str:
    """Return a command with its placeholders replaced: words in capitals, also as a part of a name.

    `POD` is not a part of `WORKER-POD`.
    """
    for name, value in values.items():
        command = re.sub(rf"(?<!\w)(?<![A-Z]-){name}(?!\w)(?!-[A-Z])", value, command)
    return command
