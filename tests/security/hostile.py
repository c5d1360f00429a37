"""Text that an attacker would try, for hypothesis: what ends a line, a scalar, a document or a template."""

from typing import Final

from hypothesis import strategies as st

LINE_BREAKS: Final = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""Everything that some reader of text takes for the end of a line."""

MANIFEST: Final = "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: injected\n  namespace: kube-system\n---"

PIECES: Final = (
    *LINE_BREAKS,
    *(MANIFEST.replace("\n", mark) for mark in ("\n", "\r\n", "\x85", "\u2028", "\u2029")),
    *(f"a\n{mark}{MANIFEST}" for mark in ("\x85", "\u2028", "\u2029")),
    *("---", "...", "- ", ": ", " #", "#", "!", "&a", "*a", "<<: *a", "%YAML 1.1", "!!binary ", "? ", "|", ">-", "@"),
    *("'", '"', "''", '\\"', "\\", "\\\\", "\\u000a", "\\u2028", "\\n", "\\N", "\\x85", "\t", " ", "=", ":"),
    *("{{", "}}", "{{ .Values }}", "{{`", "{{- fail `x` -}}", "{{/*", "*/}}", "{{ toYaml . }}", "$(SECRET)"),
    *("null", "~", "true", "on", "yes", "0x1f", "1e3", "1_000", "12:30:45", "0b1", "0o7", ".inf", "2026-01-01", "<"),
    *("\x00", "\x07", "\x1b[2J", "\x7f", "\x80", "\x9f", "\ufeff", "\ufffe", "\u200b", "\u202e", "é", "\U0001f600"),
    *("{", "}", "[", "]", ",", "a" * 5000, "metadata:", "  namespace: kube-system", "items:", "kind: List"),
)  # fmt: skip

hostile_text: Final = st.one_of(
    st.sampled_from(PIECES),
    st.lists(st.sampled_from(PIECES), min_size=2, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
"""Any text but lone surrogates, which JSON from the API server cannot hold."""
