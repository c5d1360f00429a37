"""What the Secrets of a pipeline's namespace hold for the login at the fence's database."""

from __future__ import annotations

import re

from fencepost.fence import FenceTlsFailed
from fencepost.fence.tls import PLACE, POSTGRESQL_PLACE, TlsMaterial
from fencepost_operator.api import FenceConnection, ObjectKey, PostgresqlConnection
from fencepost_operator.errors import Rejected
from fencepost_operator.ports import SecretReader


async def tls_of(connection: FenceConnection, secrets: SecretReader) -> TlsMaterial | None:
    """Return the certificates, None without TLS. Raises Rejected, naming the key."""
    name = connection.tls_secret
    if name is None:
        return None
    data = await secrets.secret(ObjectKey(connection.namespace, name), name)
    try:
        return TlsMaterial.of(data, POSTGRESQL_PLACE if isinstance(connection, PostgresqlConnection) else PLACE)
    except FenceTlsFailed as error:
        raise Rejected(f"Secret {connection.namespace}/{name}: {error}", remedy=error.remedy) from error


async def credentials_of(connection: FenceConnection, secrets: SecretReader) -> tuple[str, str] | None:
    """Return the name and the password, None for an anonymous user. Raises Rejected, naming the key."""
    name = connection.credentials_secret
    if name is None:
        return None
    data = await secrets.secret(ObjectKey(connection.namespace, name), name)
    try:
        return data["username"], data["password"]
    except KeyError as error:
        raise Rejected(
            f"Secret {connection.namespace}/{name} has no key {error}",
            remedy=f"give Secret {name} the keys username and password",
        ) from error


def without(credentials: tuple[str, str] | None, text: str) -> str:
    """Return a text of a client or server without the name and password in it."""
    for secret in credentials or ():
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text) if secret else text
    return text
