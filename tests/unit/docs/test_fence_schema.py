"""The CQL and the SQL for accounts that may not create tables makes what the operator would make."""

from __future__ import annotations

import re

from fencepost.fence.cassandra.schema import migration_statements, table_statements
from fencepost.fence.postgresql import schema
from generators.reference import ROOT


def compact(statement: str) -> str:
    """Return the statement with one kind of space."""
    return re.sub(r"\s*([(){},<>=:])\s*", r"\1", " ".join(statement.split()))


def documented(verb: str) -> list[str]:
    parts = re.sub(r"--.*", "", (ROOT / "docs/fence-schema.cql").read_text()).split(";")
    return [statement for part in parts if (statement := compact(part)).startswith(verb)]


def test_the_cql_in_the_docs_creates_the_tables_that_the_operator_creates() -> None:
    assert documented("CREATE TABLE") == [compact(statement) for statement in table_statements("fencepost")]


def test_the_cql_in_the_docs_adds_the_columns_that_the_operator_adds() -> None:
    assert documented("ALTER") == [compact(statement) for statement in migration_statements("fencepost")]


def test_the_sql_in_the_docs_creates_the_tables_that_the_operator_creates() -> None:
    text = re.sub(r"--.*", "", (ROOT / "docs/fence-schema.sql").read_text())
    parts = [" ".join(part.split()) for part in text.split(";") if part.strip()]
    made = [" ".join(statement.split()) for statement in schema.statements("fencepost")]
    assert parts[: len(made)] == made
    assert [part.split()[0] for part in parts[len(made) :]] == ["GRANT", "GRANT"]
