"""What tests need to know of the testbed that runs."""

from dataclasses import dataclass
from pathlib import Path

from testbed.cluster import CASSANDRA_PORT, KAFKA_MTLS_PORT, KAFKA_PORT, KAFKA_SASL_PORT
from testbed.home import Home
from testbed.services.credentials import KAFKA_PASSWORD, KAFKA_USERNAME, PASSWORD, USERNAME
from testbed.services.kafka_and_cassandra import NAMESPACE


class NotUpError(Exception):
    """The testbed is not up; run `python -m testbed up`."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where things are, from the host (`_host`) and from inside the cluster (`_cluster`)."""

    kubeconfig: Path
    kubectl: Path
    helm: Path
    kind: Path
    docker: Path
    kafka_host: str
    kafka_cluster: str
    kafka_sasl_host: str
    """SASL_SSL: SCRAM-SHA-512 and PLAIN, as `kafka_username`, who may do nothing without an ACL."""
    kafka_sasl_cluster: str
    kafka_mtls_host: str
    """SSL with a client certificate, whose common name is the user."""
    kafka_mtls_cluster: str
    kafka_username: str
    kafka_password: str
    kafka_tls: Path
    """A folder with ca.crt, and with client.crt and client.key of `kafka_username`."""
    cassandra_host: str
    cassandra_port: int
    cassandra_cluster: str
    cassandra_cluster_port: int
    cassandra_username: str
    cassandra_password: str
    job_image: str
    operator_image: str

    def variables(self, path: str) -> dict[str, str]:
        """As shell variables; `path` is the PATH to put the pinned tools before."""
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self.kubectl.parent}:{path}",
            "FENCEPOST_KAFKA": self.kafka_host,
            "FENCEPOST_KAFKA_IN_CLUSTER": self.kafka_cluster,
            "FENCEPOST_CASSANDRA": f"{self.cassandra_host}:{self.cassandra_port}",
            "FENCEPOST_CASSANDRA_IN_CLUSTER": f"{self.cassandra_cluster}:{self.cassandra_cluster_port}",
            "FENCEPOST_CASSANDRA_USERNAME": self.cassandra_username,
            "FENCEPOST_CASSANDRA_PASSWORD": self.cassandra_password,
            "FENCEPOST_JOB_IMAGE": self.job_image,
            "FENCEPOST_OPERATOR_IMAGE": self.operator_image,
        }


def load(home: Home | None = None) -> Environment:
    """The testbed's environment.  Raises NotUpError where no `up` has made a cluster."""
    home = home or Home.of_user()
    if not home.kubeconfig.is_file():
        raise NotUpError(
            f"no cluster in {home.root}: run `make up` (or `python -m testbed up` with tests/ on PYTHONPATH)"
        )
    return Environment(
        kubeconfig=home.kubeconfig,
        kubectl=home.bin / "kubectl",
        helm=home.bin / "helm",
        kind=home.bin / "kind",
        docker=home.bin / "docker",
        kafka_host=f"127.0.0.1:{KAFKA_PORT}",
        kafka_cluster=f"kafka.{NAMESPACE}.svc.cluster.local:9092",
        kafka_sasl_host=f"127.0.0.1:{KAFKA_SASL_PORT}",
        kafka_sasl_cluster=f"kafka.{NAMESPACE}.svc.cluster.local:9095",
        kafka_mtls_host=f"127.0.0.1:{KAFKA_MTLS_PORT}",
        kafka_mtls_cluster=f"kafka.{NAMESPACE}.svc.cluster.local:9097",
        kafka_username=KAFKA_USERNAME,
        kafka_password=KAFKA_PASSWORD,
        kafka_tls=home.kafka_tls,
        cassandra_host="127.0.0.1",
        cassandra_port=CASSANDRA_PORT,
        cassandra_cluster=f"cassandra.{NAMESPACE}.svc.cluster.local",
        cassandra_cluster_port=9042,
        cassandra_username=USERNAME,
        cassandra_password=PASSWORD,
        job_image="fencepost-job:dev",
        operator_image="fencepost-operator:dev",
    )
