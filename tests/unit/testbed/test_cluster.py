"""Only what was made here is touched; what a node gets is decided from addresses alone."""

import json
import subprocess

import pytest

from testbed.__main__ import parser
from testbed.cluster import NODES, RECORD, Cluster, delete, owned
from testbed.engine import Docker, process_start, stop, was_started
from testbed.environment import NotUpError, load
from testbed.home import Home
from testbed.images.base_images import Registry
from testbed.images.built_images import qualified
from testbed.images.node_image import NodeImage
from testbed.network import Network, node_script, plugin_configuration
from testbed.process import Transcript
from testbed.steps import StepError

FOUND = {name: (f"id-{name}", "running") for name in NODES}
ADDRESSES = {name: (f"172.18.0.{number}", f"10.244.{number}.0/24") for number, name in enumerate(NODES, start=2)}


def test_a_cluster_without_a_record_is_someone_elses(home: Home) -> None:
    assert not owned(home, FOUND)
    assert owned(home, {})


def test_a_cluster_is_ours_by_its_containers_ids(home: Home) -> None:
    home.write(RECORD, {name: identity for name, (identity, _) in FOUND.items()})
    assert owned(home, FOUND)
    assert not owned(home, FOUND | {NODES[0]: ("another", "running")})


def test_what_a_killed_creation_left_is_ours(home: Home) -> None:
    home.write(RECORD, {"making": "yes"})
    assert owned(home, FOUND)


def test_someone_elses_cluster_is_not_deleted(home: Home) -> None:
    client = home.bin / "docker"
    client.write_text(f"#!/bin/sh\n[ $1 = rm ] && touch {home.root}/removed\necho {NODES[0]} id running\n")
    client.chmod(0o755)
    with pytest.raises(StepError, match="left alone"):
        delete(home, Docker(home), Transcript(home.logs / "down.log"))
    assert not (home.root / "removed").exists()


def client(home: Home, name: str, script: str) -> None:
    """A command-line client in the testbed's bin folder."""
    path = home.bin / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def cluster_in(home: Home) -> Cluster:
    docker = Docker(home)
    return Cluster(home, docker, NodeImage(home, docker, Registry(docker)))


def test_a_cluster_whose_nodes_were_restarted_is_created_again(home: Home) -> None:
    cluster = cluster_in(home)
    rows = "\n".join(f"{name} id-{name} running" for name in NODES)
    client(home, "docker", f'case $1 in ps) echo "{rows}";; inspect) cat {home.root}/started;; esac')
    client(home, "kubectl", "echo -n ok")
    record = {name: identity for name, (identity, _) in FOUND.items()}
    home.write(RECORD, {**record, "key": "key", "started": "08:00 08:00 08:00"})
    (home.root / "started").write_text("08:00\n08:00\n08:00\n")
    assert cluster.present("key")
    (home.root / "started").write_text("08:00\n09:30\n08:00\n")
    assert not cluster.present("key")


def test_the_network_is_waited_for_until_it_is_there(home: Home) -> None:
    network = Network(cluster_in(home))
    nodes = " ".join(f"{name}=True" for name in NODES)
    client(home, "docker", "exit 1")
    client(
        home,
        "kubectl",
        f"""case "$*" in
*coredns*jsonpath*) echo -n . >>{home.root}/asked; [ $(wc -c <{home.root}/asked) -gt 1 ] && echo -n 1;;
*jsonpath*) echo "{nodes}";;
esac""",
    )
    network.make("key", Transcript(home.logs / "network.log"))
    assert network.present("key")
    assert "missing: CoreDNS is not ready" in (home.logs / "network.log").read_text()


def test_a_process_that_reused_the_recorded_id_is_not_stopped(home: Home) -> None:
    start = process_start(1)
    home.write("dockerd", {"pid": "1", "start": f"{start}0"})
    assert not stop(home)


def test_an_engine_that_was_stopped_is_known_to_hold_images(home: Home) -> None:
    assert not was_started(home)
    orphan = subprocess.check_output(["sh", "-c", "sleep 60 >/dev/null & echo $!"], text=True).strip()
    home.write("dockerd", {"pid": orphan, "start": process_start(int(orphan)) or ""})
    assert stop(home)
    assert was_started(home)
    assert not stop(home)


def test_a_node_is_given_routes_to_the_others_and_none_to_itself() -> None:
    script = node_script(NODES[0], ADDRESSES)
    assert "ip route replace 10.244.3.0/24 via 172.18.0.3" in script
    assert "ip route replace 10.244.4.0/24 via 172.18.0.4" in script
    assert "172.18.0.2" not in script


def test_a_node_hands_out_addresses_of_its_own_subnet() -> None:
    plugin = json.loads(plugin_configuration("10.244.2.0/24"))["plugins"][0]
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("fencepost-job:dev", "docker.io/library/fencepost-job:dev"),
        ("fencepost-testbed/kafka:dev", "docker.io/fencepost-testbed/kafka:dev"),
        ("registry.k8s.io/pause:3.10.1", "registry.k8s.io/pause:3.10.1"),
        ("localhost/job:1", "localhost/job:1"),
        ("localhost:5000/job:1", "localhost:5000/job:1"),
    ],
)
def test_names_are_spelled_as_containerd_spells_them(image: str, full: str) -> None:
    assert qualified(image) == full


def test_there_is_no_environment_before_up(home: Home) -> None:
    with pytest.raises(NotUpError, match="python -m testbed up"):
        load(home)


def test_a_tool_that_is_not_built_yet_has_no_path(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    asked = parser().parse_args(["env", "--tool", "vale"])
    with pytest.raises(StepError, match="`make check` builds vale"):
        asked.function(home, asked)
    home.bin.mkdir(exist_ok=True)
    (home.bin / "vale").touch()
    assert asked.function(home, asked) == 0
    assert capsys.readouterr().out == f"{home.bin / 'vale'}\n"


def test_the_environment_speaks_of_the_pinned_tools(home: Home) -> None:
    home.kubeconfig.write_text("")
    found = load(home)
    assert found.kafka_host == "127.0.0.1:29092"
    assert (found.cassandra_host, found.cassandra_port) == ("127.0.0.1", 29042)
    assert found.variables("/usr/bin")["PATH"] == f"{home.bin}:/usr/bin"
