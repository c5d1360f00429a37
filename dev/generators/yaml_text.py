"""YAML as people write it, so that a change of a generated file is read in its diff."""

from __future__ import annotations

import textwrap
from typing import Any, Final

import yaml

SHORT: Final = 90
"""Characters of a mapping that is written on one line."""


def yaml_text(data: object) -> str:
    """Return plain data as YAML, with lines of about 120 characters."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Short lists and mappings on one line, long text in folded blocks, and no anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's
        super().increase_indent(flow, indentless=False)

    def choose_scalar_style(self) -> str:
        style, event, found = super().choose_scalar_style(), self.event, self.analysis
        assert isinstance(event, yaml.ScalarEvent)
        assert found is not None
        text = event.value
        is_block = not (self.flow_level or self.simple_key_context) and found.allow_block
        words = text.split()
        if is_block and len(words) > 1 and " ".join(words) == text and self.column + len(text) > self.best_width:
            return ">"
        return '"' if found.multiline or (style == "'" and not set(text) & {'"', "\\"}) else style

    def write_folded(self, text: str) -> None:
        """Fold before a line is too long; PyYAML does so after that."""
        self.write_indicator(">-", need_whitespace=True)
        width = self.best_width - (self.indent or 0)
        for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
            self.write_indent()
            self.write_indicator(line, need_whitespace=False)


def _list(dumper: _Dumper, items: list[Any]) -> yaml.SequenceNode:
    words = all(isinstance(item, str) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=words)


def _mapping(dumper: _Dumper, data: dict[str, Any]) -> yaml.MappingNode:
    scalars = not any(isinstance(part, dict | list) for part in data.values())
    is_short = scalars and sum(len(f"{key}: {part}, ") for key, part in data.items()) <= SHORT
    return dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=is_short)


_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _mapping)
