"""What the driver's pod gives it: variables, and where its files are mounted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fencepost.contract import (
    CASSANDRA_TLS_DIR,
    CODE_DIR,
    KAFKA_PROPERTIES_DIR,
    POSTGRESQL_TLS_DIR,
    REGISTRY_CREDENTIALS_DIR,
    SINK_OPTIONS_DIR,
    TELEMETRY_CREDENTIALS_DIR,
    Variable,
    kafka_properties,
)
from fencepost.formats.access import HEADERS, SECRETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the pod gives besides the configuration."""

    driver: str
    credentials: tuple[str, str] | None
    """The account at the database of the fence; its password is '' where a client certificate is enough."""
    variables: Mapping[str, str]
    termination_log: Path
    code_dir: Path = Path(CODE_DIR)
    kafka_properties: Path = Path(KAFKA_PROPERTIES_DIR)
    registry_credentials: Path = Path(REGISTRY_CREDENTIALS_DIR)
    telemetry_credentials: Path = Path(TELEMETRY_CREDENTIALS_DIR)
    sink_options: Path = Path(SINK_OPTIONS_DIR)
    cassandra_tls: Path = Path(CASSANDRA_TLS_DIR)
    postgresql_tls: Path = Path(POSTGRESQL_TLS_DIR)

    @classmethod
    def read(cls, variables: Mapping[str, str], *, termination_log: Path) -> Environment:
        """Read the pod's variables."""
        username = variables.get(Variable.CASSANDRA_USERNAME)
        password = variables.get(Variable.CASSANDRA_PASSWORD)
        credentials = (username, password) if username and password else None
        if of_postgresql := variables.get(Variable.POSTGRESQL_USERNAME):
            credentials = of_postgresql, variables.get(Variable.POSTGRESQL_PASSWORD, "")
        return cls(
            driver=variables.get(Variable.POD_UID) or f"{os.uname().nodename}-{os.getpid()}",
            credentials=credentials,
            variables=dict(variables),
            termination_log=termination_log,
        )

    def secrets(self) -> Iterator[str]:
        """Yield the texts that this pod was given as secrets, as far as the driver knows them for such."""
        yield from (self.credentials or ())[1:]
        yield self.variables.get(Variable.SPARK_AUTH_SECRET, "")
        of_kafka = [self.kafka_properties / name for name in sorted(kafka_properties.SECRETS)]
        folders = [self.registry_credentials, *sorted(self.telemetry_credentials.glob("*"))]
        of_services = [folder / name for folder in folders for name in SECRETS]
        of_sinks = self.sink_options.glob("*/*")
        of_fence = [folder / "tls.key" for folder in (self.cassandra_tls, self.postgresql_tls)]
        for path in (*of_kafka, *of_services, *of_sinks, *of_fence):
            with suppress(OSError, ValueError):
                lines = path.read_text(encoding="utf-8").splitlines()
                yield from lines
                if path.name == HEADERS and path.parent in folders:
                    yield from (line.partition(":")[2].strip() for line in lines)


def config_text(variables: Mapping[str, str]) -> str:
    """Return the configuration's JSON, from the mounted file where there is one."""
    path = variables.get(Variable.CONFIG_FILE)
    return Path(path).read_text(encoding="utf-8") if path else variables.get(Variable.CONFIG, "")
