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
    REGISTRY_CREDENTIALS_DIR,
    SINK_OPTIONS_DIR,
    Variable,
    kafka_properties,
)
from fencepost.formats.access import SECRETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the pod gives besides the configuration."""

    driver: str
    credentials: tuple[str, str] | None
    variables: Mapping[str, str]
    termination_log: Path
    code_dir: Path = Path(CODE_DIR)
    kafka_properties: Path = Path(KAFKA_PROPERTIES_DIR)
    registry_credentials: Path = Path(REGISTRY_CREDENTIALS_DIR)
    sink_options: Path = Path(SINK_OPTIONS_DIR)
    cassandra_tls: Path = Path(CASSANDRA_TLS_DIR)

    @classmethod
    def read(cls, variables: Mapping[str, str], *, termination_log: Path) -> Environment:
        """Read the pod's variables."""
        username = variables.get(Variable.CASSANDRA_USERNAME)
        password = variables.get(Variable.CASSANDRA_PASSWORD)
        return cls(
            driver=variables.get(Variable.POD_UID) or f"{os.uname().nodename}-{os.getpid()}",
            credentials=(username, password) if username and password else None,
            variables=dict(variables),
            termination_log=termination_log,
        )

    def secrets(self) -> Iterator[str]:
        """Yield the texts that this pod was given as secrets, as far as the driver knows them for such."""
        yield from (self.credentials or ())[1:]
        yield self.variables.get(Variable.SPARK_AUTH_SECRET, "")
        of_kafka = [self.kafka_properties / name for name in sorted(kafka_properties.SECRETS)]
        of_registry = [self.registry_credentials / name for name in SECRETS]
        of_sinks = self.sink_options.glob("*/*")
        for path in (*of_kafka, *of_registry, *of_sinks, self.cassandra_tls / "tls.key"):
            with suppress(OSError, ValueError):
                yield from path.read_text(encoding="utf-8").splitlines()


def config_text(variables: Mapping[str, str]) -> str:
    """Return the configuration's JSON, from the mounted file where there is one."""
    path = variables.get(Variable.CONFIG_FILE)
    return Path(path).read_text(encoding="utf-8") if path else variables.get(Variable.CONFIG, "")
