"""Masks secrets in text of other programs by their patterns, because their values are not known.

A pattern may miss a secret.  A text that is known to hold one must not be shown at all.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"
_NAME: Final = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|authorization|api[-_.]?key|access[-_.]?key|"
    r"private[-_.]?key|signature)"
)
_VALUE: Final = r"""(?:"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|(?:bearer|basic|digest)[^\S\n]{1,8}\S+|\S+)"""
_PATTERNS: Final = (
    # a key in PEM, also one that is cut off
    (re.compile(r"-----BEGIN [A-Z ]{0,40}KEY-----.*?(?:-----END [A-Z ]{0,40}KEY-----|\Z)", re.DOTALL), MASK),
    # all of a JAAS configuration: it may have any options
    (re.compile(r"(jaas[\w.-]{0,40}[\"']?[^\S\n]{0,8}[=:])[^\n]*", re.IGNORECASE), rf"\1{MASK}"),
    # the user information of a URL
    (re.compile(r"(://)\S{1,512}@"), rf"\1{MASK}@"),
    # an assignment, as in properties, JSON, YAML, Python and the environment
    (
        re.compile(
            rf"({_NAME}[\w.-]{{0,40}}\\?[\"']?[^\S\n]{{0,8}}(?:=>|[=:])[^\S\n]{{0,8}}\\?){_VALUE}", re.IGNORECASE
        ),
        rf"\1{MASK}",
    ),
    # an option of a command line
    (re.compile(rf"(-[\w-]{{0,40}}{_NAME}[^\S\n]{{1,8}})[^\s=:-]\S*", re.IGNORECASE), rf"\1{MASK}"),
    # a token alone
    (re.compile(r"(\bbearer[^\S\n]{1,8})[\w.~+/=-]{16,}", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w.-]*"), MASK),
)


def masked(text: str) -> str:
    """Return the text with what looks like a secret covered: passwords, tokens, keys, JAAS, credentials in URLs.

    Mask a text before it is shortened: otherwise a secret may lose the name by which it is recognized.
    """
    for pattern, cover in _PATTERNS:
        text = pattern.sub(cover, text)
    return text
