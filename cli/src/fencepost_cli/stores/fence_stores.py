"""The database of a pipeline's fence, whichever kind it is."""

from __future__ import annotations

from contextlib import AbstractContextManager

from fencepost_cli.ports import CassandraAccess, FenceAccess, Store
from fencepost_cli.stores import cassandra, postgresql


def open_store(access: FenceAccess) -> AbstractContextManager[Store]:
    """Connect for the block. Raises CliError."""
    return cassandra.open_store(access) if isinstance(access, CassandraAccess) else postgresql.open_store(access)
