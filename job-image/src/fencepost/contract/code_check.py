"""What `fencepost check` asks of a process that imports a pipeline's code, and what that process answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from fencepost.contract.codec import decode, encode
from fencepost.contract.config import DriverConfig
from fencepost.contract.sinks import ClusteringColumn

CHECKER: Final = "fencepost.testing.code_check"
"""The module that reads a CodeRequest on its standard input, and writes a CodeAnswer to its standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A table of a schema file or of Cassandra: column name to CQL type, its key, and the keyspace's types by name."""

    keyspace: str
    name: str
    columns: Mapping[str, str]
    partition_key: tuple[str, ...]
    clustering_key: tuple[ClusteringColumn, ...] = ()
    user_types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRequest:
    """The configuration of a run, the folder with its code, and the tables that are known by 'keyspace.table'."""

    config: DriverConfig
    code_dir: str
    tables: Mapping[str, DeclaredTable] = field(default_factory=dict)
    registry_credentials: str = ""
    """The folder with the keys of the schema registry's Secret as files; '' for a registry that asks for none."""

    def to_json(self) -> str:
        """Return the text of the request."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the request. Raises ContractError."""
        return decode(cls, text, "the request")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeProblem:
    """What a run would end with; `place` is the field of the spec."""

    message: str
    remedy: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeAnswer:
    """The problems that were found; none of code that fits."""

    problems: tuple[CodeProblem, ...] = ()

    def to_json(self) -> str:
        """Return the text of the answer."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the answer. Raises ContractError."""
        return decode(cls, text, "the answer")
