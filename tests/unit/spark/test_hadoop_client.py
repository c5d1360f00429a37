"""The Hadoop client that ships with Spark, against the checkpoint's services: what Spark relies on, at each version."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fakes.checkpoint_services import MIB, SECRET, Row, Served, serving
from fencepost.state.chunks import CHUNK
from fencepost.state.memory import MemoryChunks
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.client_settings import client_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def chunks() -> MemoryChunks:
    return MemoryChunks()


@pytest.fixture
def served(chunks: MemoryChunks, tmp_path: Path) -> Iterator[Served]:
    with serving(chunks, tmp_path / "cache") as made:
        yield made


DENIED = ENDED = "org.apache.hadoop.security.AccessControlException"
EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"
MISSING = "java.io.FileNotFoundException"


class Client:
    """Java's file system, without its cache of instances."""

    def __init__(self, spark: SparkSession, served: Served, header: str | None = None) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        jvm: Any = self._jvm
        self.root = served.names.location
        conf = jvm.org.apache.hadoop.conf.Configuration()
        for key, value in client_settings(header or served.names.header, patience=30).items():
            conf.set(key.removeprefix("spark.hadoop."), value)
        uri = jvm.java.net.URI(self.root)
        self.files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(uri, conf)

    def path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}")

    def local(self, path: Path) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"file://{path}")

    def write(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        stream = self.files.create(self.path(name), overwrite)
        stream.write(content)
        stream.close()

    def read(self, name: str, start: int) -> bytes:
        stream = self.files.open(self.path(name))
        stream.seek(start)
        found = stream.readAllBytes()
        stream.close()
        return bytes(found)

    def rename(self, source: str, target: str) -> bool:
        return bool(self.files.rename(self.path(source), self.path(target)))

    def list(self, name: str) -> dict[str, tuple[int, bool]]:
        found = self.files.listStatus(self.path(name))
        return {each.getPath().getName(): (each.getLen(), each.isDirectory()) for each in found}


def raises(java_class: str, act: Callable[..., object], *arguments: object, **named: object) -> str:
    """Run what raises an exception of a Java class, and return its message."""
    with pytest.raises(Exception, match=r".") as caught:
        act(*arguments, **named)
    error: Any = caught.value
    java = error.java_exception if hasattr(error, "java_exception") else error._origin
    assert java.getClass().getName() == java_class
    return f"{error} {java.toString()}"


def test_large_file(spark: SparkSession, served: Served, chunks: MemoryChunks, tmp_path: Path) -> None:
    """64 MiB there and back, from the cache and from chunks."""
    content, client = random.Random(4).randbytes(64 * MIB), Client(spark, served)
    (tmp_path / "there").write_bytes(content)
    client.files.copyFromLocalFile(client.local(tmp_path / "there"), client.path("state/0/1.sst"))
    client.files.copyToLocalFile(client.path("state/0/1.sst"), client.local(tmp_path / "cached"))
    row = Row(metadata=b"{}", tree=served.checkpoint._directory.tree)
    with serving(chunks, tmp_path / "other-cache", epoch=2, row=row) as successor:
        other = Client(spark, successor)
        other.files.copyToLocalFile(other.path("state/0/1.sst"), other.local(tmp_path / "chunks"))
        assert other.list("state/0") == {"1.sst": (64 * MIB, False)}
    assert [_sha(tmp_path / name) for name in ("cached", "chunks")] == [hashlib.sha256(content).hexdigest()] * 2


@pytest.mark.parametrize("start", [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK - 7, 3 * CHUNK + 4])
@pytest.mark.parametrize("name", ["state/0/1.zip", "offsets/3"])
def test_ranged_read(spark: SparkSession, served: Served, name: str, start: int) -> None:
    content = random.Random(5).randbytes(3 * CHUNK + 5 if name.startswith("state") else 1000)
    client = Client(spark, served)
    client.write(f"{name}.tmp", content)
    assert client.read(f"{name}.tmp", min(start, 999)) == content[min(start, 999) :]


def test_empty_file(spark: SparkSession, served: Served) -> None:
    client = Client(spark, served)
    client.write("state/0/empty", b"")
    assert client.read("state/0/empty", 0) == b""
    assert client.list("state/0") == {"empty": (0, False)}


def test_name_of_a_file_may_need_an_escape(spark: SparkSession, served: Served) -> None:
    client = Client(spark, served)
    for name in ("offsets/.a b+c%41&d.tmp", "state/ä=1?.tmp"):
        client.write(name, b"x")
        assert client.read(name, 0) == b"x"
        assert name.rpartition("/")[2] in client.list(name.partition("/")[0])


def test_rename(spark: SparkSession, served: Served) -> None:
    client = Client(spark, served)
    for name in ("a", "b", "c"):
        client.write(f"state/{name}", name.encode())
    assert client.rename("state/a", "state/b")
    assert client.read("state/b", 0) == b"a"
    raises(MISSING, client.rename, "state/a", "state/d")
    assert client.rename("state/c", "state/d")
    assert client.list("state") == {"b": (1, False), "d": (1, False)}


def test_create_if_absent(spark: SparkSession, served: Served) -> None:
    client = Client(spark, served)
    for name in ("state/a", "commits/.1.tmp"):
        client.write(name, b"1")
        raises(EXISTS, client.write, name, b"2", overwrite=False)
        client.write(name, b"3", overwrite=True)
        assert client.read(name, 0) == b"3"


def test_two_writers_of_a_path_that_was_absent(spark: SparkSession, served: Served) -> None:
    client = Client(spark, served)
    first, second = (client.files.create(client.path("state/a"), False) for _ in range(2))
    for stream in (first, second):
        stream.write(b"x")
    first.close()
    raises(EXISTS, second.close)


def test_listing_and_deletion(spark: SparkSession, served: Served) -> None:
    client = Client(spark, served)
    client.write("state/0/0/1.changelog", b"12345")
    client.files.mkdirs(client.path("state/0/1"))
    assert client.list("state/0") == {"0": (0, True), "1": (0, True)}
    assert client.list("state/0/0/1.changelog") == {"1.changelog": (5, False)}
    status = client.files.getFileStatus(client.path("state/0/0/1.changelog"))
    assert abs(status.getModificationTime() / 1000 - time.time()) < 60
    raises("java.io.IOException", client.files.delete, client.path("state/0"), False)
    assert client.files.delete(client.path("state/0"), True)
    assert not client.files.delete(client.path("state/0"), True)
    assert client.list("state") == {}


def test_missing_file(spark: SparkSession, served: Served) -> None:
    client = Client(spark, served)
    for act in (client.files.open, client.files.getFileStatus, client.files.listStatus):
        raises(MISSING, act, client.path("state/none"))
    assert not client.files.exists(client.path("offsets/7"))


def test_refused_without_the_header(spark: SparkSession, served: Served) -> None:
    """Not even names are shown, and no message has what would let a stranger in."""
    Client(spark, served).write("state/a", b"secret")
    for header in ("x-none", Keys("other").header("s/ns/n/1"), Keys(SECRET).header("s/ns/n/2")):
        stranger = Client(spark, served, header)
        for act in (stranger.files.open, stranger.files.getFileStatus, stranger.files.create):
            message = raises(DENIED, act, stranger.path("state/a"))
            assert not any(part in message for part in (served.names.header, "ticket=", SECRET))


def test_a_later_run_at_the_same_address_sends_its_own_header(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    name = "dfs.webhdfs.rest-csrf.custom-header"
    for header in ("x-first", "x-second"):
        conf = jvm.org.apache.hadoop.conf.Configuration()
        for key, value in client_settings(header, patience=30).items():
            conf.set(key.removeprefix("spark.hadoop."), value)
        files = jvm.org.apache.hadoop.fs.Path("webhdfs://127.0.0.1:7/e1").getFileSystem(conf)
        assert files.getConf().get(name) == header


def test_header_is_hidden_in_pages_and_event_log(spark: SparkSession, served: Served) -> None:
    """Spark redacts what its listeners are given by this function."""
    jvm: Any = spark.sparkContext._jvm
    settings = client_settings(served.names.header, patience=30)
    pairs = [jvm.scala.Tuple2(key, value) for key, value in settings.items()]
    redacted = jvm.org.apache.spark.util.Utils.redact(spark.sparkContext._conf._jconf, jvm.PythonUtils.toSeq(pairs))
    assert served.names.header not in redacted.toString()
    assert "retry.policy.enabled,false" in redacted.toString()


def test_ended_epoch_refuses_every_change(spark: SparkSession, served: Served) -> None:
    client = Client(spark, served)
    client.write("state/a", b"1")
    open_upload = client.files.create(client.path("state/b"), True)
    open_upload.write(b"2")
    served.checkpoint.close()
    raises(ENDED, open_upload.close)
    raises(ENDED, client.write, "state/c", b"3")
    raises(ENDED, client.write, "offsets/.0.tmp", b"3")
    raises(ENDED, client.rename, "state/a", "state/c")
    raises(ENDED, client.files.delete, client.path("state/a"), True)
    raises(ENDED, client.files.mkdirs, client.path("state/d"))
    assert client.read("state/a", 0) == b"1"


def test_path_of_another_epoch(spark: SparkSession, served: Served) -> None:
    client = Client(spark, served)
    client.root = client.root.replace("/e1", "/e0")
    other = client.path("state/a")
    raises("java.io.IOException", client.files.create, other, True)
    raises("java.io.IOException", client.files.delete, other, True)


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
