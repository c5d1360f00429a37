"""How a schema registry is reached: its address, and what the Secret of the pipeline holds for it."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from fencepost.contract import CassandraTls
from fencepost.contract.formats import RegistryEndpoint
from fencepost.errors import BadSpec

USERNAME: Final = "username"
PASSWORD: Final = "password"  # noqa: S105 - a key's name
TOKEN: Final = "token"  # noqa: S105 - a key's name
CA: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
KEYS: Final = (USERNAME, PASSWORD, TOKEN, CA, CERTIFICATE, KEY)
SECRETS: Final = (PASSWORD, TOKEN, KEY)
"""Those whose text appears in no log."""
PLACE: Final = "the Secret of spec.source.kafka.schemaRegistry.credentialsFrom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A registry's address and credentials; `texts` has those keys of the Secret that KEYS names."""

    url: str
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, endpoint: RegistryEndpoint, folder: Path) -> Self:
        """Return the access with the files of a folder (a mounted Secret), if it is there. Raises BadSpec."""
        found = {name: folder / name for name in KEYS}
        texts = {
            name: path.read_text(encoding="utf-8", errors="replace").strip()
            for name, path in found.items()
            if path.is_file()
        }
        if folder.is_dir() and not texts:
            raise BadSpec(f"{PLACE} has none of the keys {', '.join(KEYS)}", remedy="Add what the registry asks for.")
        for one, other in ((USERNAME, PASSWORD), (CERTIFICATE, KEY), (CERTIFICATE, CA)):
            if one in texts and other not in texts:
                raise BadSpec(f"{PLACE} has the key {one} and not {other}", remedy=f"Add {other}, or remove {one}.")
        access = cls(url=endpoint.url.rstrip("/"), texts=tuple(sorted(texts.items())))
        access.context()
        return access

    def headers(self) -> dict[str, str]:
        """Return the headers that name the account."""
        texts = dict(self.texts)
        if token := texts.get(TOKEN):
            return {"Authorization": f"Bearer {token}"}
        if username := texts.get(USERNAME):
            account = base64.b64encode(f"{username}:{texts.get(PASSWORD, '')}".encode()).decode()
            return {"Authorization": f"Basic {account}"}
        return {}

    def context(self) -> ssl.SSLContext | None:
        """Return how certificates are checked, None without TLS. Without `ca.crt` the image's authorities count.

        Raises BadSpec naming the key that cannot be read.
        """
        if not self.url.startswith("https:"):
            return None
        texts = dict(self.texts)
        if CA not in texts:
            return ssl.create_default_context()
        return _context(texts)


def _context(texts: Mapping[str, str]) -> ssl.SSLContext:
    from fencepost.fence.cassandra.tls import TlsMaterial  # noqa: PLC0415 - most registries need no certificate
    from fencepost.fence.errors import FenceTlsFailed  # noqa: PLC0415

    try:
        return TlsMaterial.of(texts, PLACE).context(CassandraTls())
    except FenceTlsFailed as error:
        raise BadSpec(str(error), remedy=error.remedy) from None
