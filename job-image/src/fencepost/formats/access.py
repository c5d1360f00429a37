"""How an HTTP service is reached: its address, and what a Secret of the pipeline holds for it."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from fencepost.errors import BadSpec

USERNAME: Final = "username"
PASSWORD: Final = "password"  # noqa: S105 - a key's name
TOKEN: Final = "token"  # noqa: S105 - a key's name
HEADERS: Final = "headers"
"""Further headers, a line `name: value` for each."""
CA: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
KEYS: Final = (USERNAME, PASSWORD, TOKEN, HEADERS, CA, CERTIFICATE, KEY)
SECRETS: Final = (PASSWORD, TOKEN, HEADERS, KEY)
"""Those whose text appears in no log."""


_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A service's address and credentials; `texts` has those keys of the Secret that KEYS names."""

    url: str
    place: str = field(default="", compare=False)
    """The Secret, for messages."""
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, url: str, folder: Path, *, field: str) -> Self:
        """Return the access with the files of a folder, if it is there: the Secret that the spec's field names.

        Raises BadSpec.
        """
        place = f"the Secret of {field}"
        found = {name: folder / name for name in KEYS}
        texts = {
            name: path.read_text(encoding="utf-8", errors="replace").strip()
            for name, path in found.items()
            if path.is_file()
        }
        if folder.is_dir() and not texts:
            raise BadSpec(f"{place} has none of the keys {', '.join(KEYS)}", remedy="Add what the service asks for.")
        for one, other in ((USERNAME, PASSWORD), (CERTIFICATE, KEY), (CERTIFICATE, CA)):
            if one in texts and other not in texts:
                raise BadSpec(f"{place} has the key {one} and not {other}", remedy=f"Add {other}, or remove {one}.")
        access = cls(url=url.rstrip("/"), place=place, texts=tuple(sorted(texts.items())))
        access.headers()
        access.context()
        return access

    def headers(self) -> dict[str, str]:
        """Return the headers that name the account. Raises BadSpec naming the line that is not a header."""
        texts = dict(self.texts)
        found = dict(_header(line, self.place) for line in texts.get(HEADERS, "").splitlines() if line.strip())
        return {**found, **self._authorization(texts)}

    def _authorization(self, texts: Mapping[str, str]) -> dict[str, str]:
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
        return _context(texts, self.place)


def _header(line: str, place: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(line.strip())
    if found is None:
        raise BadSpec(f"{place} has a line in {HEADERS} that is not a header", remedy="Write each as `name: value`.")
    return found[1], found[2]


def _context(texts: Mapping[str, str], place: str) -> ssl.SSLContext:
    from fencepost.fence.errors import FenceTlsFailed  # noqa: PLC0415
    from fencepost.fence.tls import TlsMaterial  # noqa: PLC0415 - most registries need no certificate

    try:
        return TlsMaterial.of(texts, place).context()
    except FenceTlsFailed as error:
        raise BadSpec(str(error), remedy=error.remedy) from None
