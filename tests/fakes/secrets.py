"""The Secrets of a namespace, as an adapter asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Secrets:
    """Each name has the same content."""

    data: Mapping[str, str] = field(default_factory=dict)

    async def secret(self, _key: object, _name: str) -> Mapping[str, str]:
        return self.data

    def forget_secrets(self, namespace: str) -> None:
        """They never change."""


class NoSecrets:
    """None is asked for."""

    async def secret(self, key: object, name: str) -> Mapping[str, str]:
        raise AssertionError((key, name))

    def forget_secrets(self, namespace: str) -> None:
        """None is kept."""
