"""The Cassandra role that tests and pipelines log in with."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from testbed.cluster import CASSANDRA_PORT
from testbed.process import Transcript
from testbed.steps import StepError

USERNAME: Final = "fencepost"
PASSWORD: Final = "fencepost"  # noqa: S105  # of a throw-away cluster on this machine
DEFAULT_SUPERUSER: Final = ("cassandra", "cassandra")
"""What Cassandra creates at its first start."""


def _execute(username: str, password: str, statement: str) -> None:
    from cassandra.auth import PlainTextAuthProvider  # noqa: PLC0415  # only `up` needs the driver
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile  # noqa: PLC0415
    from cassandra.policies import RoundRobinPolicy  # noqa: PLC0415

    cluster = Cluster(
        ["127.0.0.1"],
        port=CASSANDRA_PORT,
        auth_provider=PlainTextAuthProvider(username, password),
        execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=RoundRobinPolicy())},
        protocol_version=5,
        connect_timeout=5,
    )
    try:
        cluster.connect().execute(statement, timeout=10)
    finally:
        cluster.shutdown()


@dataclass(frozen=True, slots=True)
class Credentials:
    """Step: the role can log in."""

    name: str = "credentials"
    doing: str = "creating the Cassandra role"
    needs: tuple[str, ...] = ("cassandra",)

    def inputs(self) -> Mapping[str, str]:
        """The role's name and password."""
        return {"role": f"{USERNAME}:{PASSWORD}"}

    def present(self, key: str) -> bool:  # noqa: ARG002
        """It logs in and reads."""
        try:
            _execute(USERNAME, PASSWORD, "SELECT release_version FROM system.local")
        except Exception:  # noqa: BLE001  # the driver's errors have no common base; any of them means no
            return False
        return True

    def make(self, key: str, log: Transcript) -> None:  # noqa: ARG002
        """Create it as Cassandra's first superuser, which Cassandra itself creates a moment after its start."""
        try:
            import cassandra.cluster  # noqa: F401, PLC0415
        except ImportError as error:
            raise StepError(
                f"the Python package cassandra-driver is missing ({error}); run `make` or pip install it"
            ) from error
        statement = (
            f"CREATE ROLE IF NOT EXISTS {USERNAME} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true AND SUPERUSER = true"
        )
        deadline = time.monotonic() + 90
        while True:
            try:
                _execute(*DEFAULT_SUPERUSER, statement)
            except Exception as error:
                log.note(f"not yet: {error}")
                if time.monotonic() > deadline:
                    raise StepError(f"Cassandra did not let its first superuser in: {error}") from error
                time.sleep(1)
            else:
                return
