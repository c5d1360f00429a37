"""Who tests and pipelines log in as: a role of Cassandra, and a user of Kafka that may do nothing without an ACL."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from testbed.cluster import CASSANDRA_PORT, KAFKA_PORT
from testbed.process import Transcript
from testbed.steps import StepError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

USERNAME: Final = "fencepost"
PASSWORD: Final = "fencepost"  # noqa: S105  # of a throw-away cluster on this machine
DEFAULT_SUPERUSER: Final = ("cassandra", "cassandra")
"""What Cassandra creates at its first start."""

KAFKA_USERNAME: Final = "reader"
KAFKA_PASSWORD: Final = "reader-password"  # noqa: S105  # of a throw-away cluster on this machine
SCRAM_ITERATIONS: Final = 4096


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


@dataclass(frozen=True, slots=True)
class KafkaUser:
    """Step: the user can log in with SCRAM-SHA-512. It has no ACL: a test grants it what the test is about."""

    name: str = "kafka-user"
    doing: str = "creating the Kafka user"
    needs: tuple[str, ...] = ("kafka",)

    def inputs(self) -> Mapping[str, str]:
        """The user's name and password."""
        return {"user": f"{KAFKA_USERNAME}:{KAFKA_PASSWORD}:{SCRAM_ITERATIONS}"}

    def present(self, key: str) -> bool:  # noqa: ARG002
        """Kafka has a SCRAM credential of that name."""
        from confluent_kafka import KafkaException  # noqa: PLC0415  # only `up` needs the client

        try:
            admin = _kafka_admin()  # its futures end with it
            described: Any = admin.describe_user_scram_credentials([KAFKA_USERNAME], request_timeout=10)
            found = described[KAFKA_USERNAME].result(15)
        except (KafkaException, TimeoutError):
            return False
        return any(info.iterations == SCRAM_ITERATIONS for info in found.scram_credential_infos)

    def make(self, key: str, log: Transcript) -> None:
        """Create or replace the credential. Raises StepError."""
        from confluent_kafka import KafkaException  # noqa: PLC0415

        try:
            create_scram_user(_kafka_admin())
        except (KafkaException, TimeoutError) as error:
            raise StepError(f"Kafka did not take its user: {error}") from error
        deadline = time.monotonic() + 30
        while not self.present(key):  # the broker learns of it from the metadata log, a moment later
            if time.monotonic() > deadline:
                raise StepError("Kafka took its user, and does not know it 30 s later")
            log.note("not yet known")
            time.sleep(0.5)


def create_scram_user(admin: "AdminClient") -> None:
    """Create the user on a Kafka that trusts `admin`. Raises KafkaException, TimeoutError."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # noqa: PLC0415
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, SCRAM_ITERATIONS)
    wanted = UserScramCredentialUpsertion(KAFKA_USERNAME, info, KAFKA_PASSWORD.encode())
    admin.alter_user_scram_credentials([wanted], request_timeout=10)[KAFKA_USERNAME].result(15)


def _kafka_admin() -> "AdminClient":
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    return AdminClient({"bootstrap.servers": f"127.0.0.1:{KAFKA_PORT}", "log_level": 0})
