"""What the fence's errors say to a user, whichever database it is in, without the name and password."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fencepost.fence import (
    FenceCredentialsRejected,
    FenceEndpointInvalid,
    FenceError,
    FenceSchemaMissing,
    FenceUnauthorized,
    FenceUnavailable,
)
from fencepost_cli.errors import CliError


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """What to do about each kind of error; `unauthorized` follows from the refusal's text."""

    unauthorized: Callable[[str], str]
    credentials_rejected: str
    unavailable: str
    schema_missing: str
    other: str

    def of(self, error: FenceError) -> str:
        """Return what to do about an error."""
        match error:
            case FenceUnauthorized():
                return self.unauthorized(str(error))
            case FenceCredentialsRejected():
                return self.credentials_rejected
            case FenceEndpointInvalid():
                return error.remedy
            case FenceUnavailable():
                return self.unavailable
            case FenceSchemaMissing():
                return self.schema_missing
            case _:
                return self.other


@contextmanager
def explained(where: str, credentials: tuple[str, str] | None, remedies: Remedies) -> Iterator[None]:
    """Say in two lines what the errors of a database at `where` say. Raises CliError."""
    try:
        yield
    except FenceError as error:
        text = f"{where}: {error}"
        for secret in filter(None, credentials or ()):
            text = text.replace(secret, "***")
        raise CliError(text, remedy=remedies.of(error)) from error
