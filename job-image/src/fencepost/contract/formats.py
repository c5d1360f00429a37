"""How keys and values of records are decoded: by a schema of a registry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Format(StrEnum):
    """What a schema of the registry describes."""

    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "jsonSchema"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryEndpoint:
    """The address of a schema registry that has Confluent's REST API. Credentials are never part of it."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormat:
    """The schema that the columns follow: one version of a subject, which never changes.

    `message` is the full name of a Protobuf message; '' for the first one of the file.
    """

    format: Format
    subject: str
    version: int
    message: str = ""
