"""The CQL for accounts that may not create tables makes what the operator would make."""

from __future__ import annotations

import re

from fencepost.fence.cassandra import table_statements
from generators.reference import ROOT


def told(statement: str) -> str:
    """The statement without comments, and with one kind of space."""
    bare = re.sub(r"--.*", "", statement)
    return re.sub(r"\s*([(){},<>=:])\s*", r"\1", " ".join(bare.split()))


def test_the_cql_in_the_docs_makes_the_tables_that_the_operator_makes() -> None:
    documented = (ROOT / "docs/fence-schema.cql").read_text().split(";")
    tables = [statement for part in documented if "TABLE" in (statement := told(part))]
    assert tables == [told(statement) for statement in table_statements("fencepost")]
