"""Write the pictures of docs/metrics.md; `make pictures` runs both halves on the testbed.

usage: pictures.py record|draw [boards] [memory]

`record` keeps what Prometheus scraped of a run: `boards` of a pipeline on the testbed, with more load, a second worker
and a killed driver; `memory` of a program whose memory runs out, which needs no testbed. `draw` lets a Prometheus show
it by console templates to a Chromium without a screen.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from PIL import Image, ImageChops

from e2e.places import prepared
from e2e.stream import Stream, create_table
from flights.topics import Topics
from generators.consoles import WIDTH, Moment, Span, template
from generators.panels import BOARDS, Board, Panel
from generators.reference import ROOT
from gitops.alerts import pod_monitor
from harness.faults.cluster_faults import Faults
from harness.kubernetes.kubectl import Kubectl, Object
from harness.kubernetes.nodes import Nodes
from harness.load import Load
from harness.monitoring.pod_targets import pod_jobs
from harness.monitoring.prometheus import ApiServer, Prometheus, operator_job, prometheus
from harness.pipelines import KIND, Pipeline, Place
from harness.processes import free_port, running
from integration.monitoring.leaking import ALERT, PLACE, first, leaking, quick_rules, scraped
from testbed.environment import load
from testbed.home import Home
from testbed.release import NAMESPACE, RELEASE

FOLDER: Final = ROOT / "docs/metrics"
KEPT: Final = ROOT / ".cache/pictures"
MEMORY: Final = Board(
    name="memory",
    title="Memory",
    about="Memory that runs out, on both sides.",
    rows={
        "Memory that runs out": (
            Panel(
                title="Driver: heap",
                unit="bytes",
                width=24,
                queries={'jvm_memory_used_bytes{area="heap"}': "used", 'jvm_memory_max_bytes{area="heap"}': "limit"},
            ),
            Panel(
                title="Driver: share of the time in garbage collection",
                unit="percentunit",
                width=24,
                queries={"sum by (gc) (rate(jvm_gc_collection_seconds_sum[10s]))": "{{gc}}", "vector(0.3)": "bound"},
            ),
            Panel(
                title="Worker: resident memory of its Python workers",
                unit="bytes",
                width=24,
                queries={'fencepost_worker_resident_memory_bytes{process="python"}': "Python workers"},
            ),
        )
    },
)
HIGHEST: Final = 3000
"""Pixels; what is white below the last panel is cut off."""
COLOURS: Final = 64
"""Of a picture: lines and text need no more, and each of these files is in the repository forever."""
MARGIN: Final = 12
QUIET: Final = 40.0
"""Seconds of the story in which only load comes."""
LATE: Final = 420.0
"""Seconds after which the memory of the program has run out, or never will."""


def record_boards(folder: Path) -> Span:
    """Let a pipeline work on the testbed for some minutes, beside one that is suspended."""
    environment = load()
    with prepared(environment, "pictures", waits=False) as place:
        kubectl = Kubectl.of(environment, place.namespace)
        api = ApiServer.of(environment.kubeconfig, folder / "tls")
        suspended, stream = (_stream(place, kubectl, name) for name in ("arrivals", "departures"))
        suspended.apply(suspend=True)
        start = time.time()
        with (
            pod_jobs(api, kubectl, pod_monitor()) as jobs,
            prometheus(environment, folder, jobs=[_operator(api, kubectl.within(NAMESPACE)), *jobs]),
        ):
            _story(stream, Faults(kubectl=kubectl, nodes=Nodes.of(environment)))
        variables = {"$namespace": place.namespace, "$name": stream.pipeline.name, "$__rate_interval": "20s"}
        for one in (suspended, stream):
            one.pipeline.delete()
            Topics(environment.kafka_host).delete(one.load.ledger.topic)
    return Span(start, time.time(), variables)


def _operator(api: ApiServer, kubectl: Kubectl) -> Object:
    """Return the operator's scrape with the label of its pod, which a ServiceMonitor gives."""
    pod = kubectl.items("pods", f"--selector=app.kubernetes.io/instance={RELEASE}")[0]
    job = operator_job(api)
    job["static_configs"][0]["labels"]["pod"] = pod["metadata"]["name"]
    return job


def _stream(place: Place, kubectl: Kubectl, name: str) -> Stream:
    create_table(place, name)
    loaded = Load.to(place.environment.kafka_host, f"{place.namespace}-{name}")
    return Stream(place=place, pipeline=Pipeline(kubectl, name), load=loaded, table=name)


def _story(stream: Stream, faults: Faults) -> None:
    pipeline = stream.pipeline
    stream.apply()
    pipeline.wait_ready()
    with stream.load.flowing():
        time.sleep(QUIET)
        pipeline.kubectl.run("scale", f"{KIND}/{pipeline.name}", "--replicas=2")
        time.sleep(QUIET)
        epoch = pipeline.epoch()
        faults.sigkill(pipeline.driver())
        pipeline.wait_ready(epoch=epoch + 1)
    stream.load.burst(20_000)
    with stream.load.flowing():
        time.sleep(QUIET)


def record_memory(folder: Path) -> Span:
    """Let the leaking program run to its end."""
    with leaking(folder) as leak, scraped(folder, leak, groups=quick_rules()) as found:
        deadline = time.monotonic() + LATE
        while leak.driver.poll() is None and time.monotonic() < deadline:
            time.sleep(1)
        time.sleep(5)
        start, moment = first(found, "fencepost_driver_epoch"), Moment(first(found, ALERT), "the alert fires")
    return Span(start, time.time(), {f"${name}": value for name, value in PLACE.items()}, moment)


RECORDERS: Final[Mapping[str, tuple[Callable[[Path], Span], Sequence[Board]]]] = {
    "boards": (record_boards, BOARDS),
    "memory": (record_memory, (MEMORY,)),
}
"""By the name of a run, what records it and the boards that show it."""


def record(name: str) -> None:
    """Keep a run's data and what there is to draw of it."""
    shutil.rmtree(KEPT / name, ignore_errors=True)
    (KEPT / name).mkdir(parents=True)
    span = RECORDERS[name][0](KEPT / name)
    moment = {"at": span.moment.at, "what": span.moment.what} if span.moment else None
    kept = {"start": span.start, "end": span.end, "variables": dict(span.variables), "moment": moment}
    (KEPT / name / "span.json").write_text(json.dumps(kept))


def draw(name: str) -> None:
    """Write the pictures of a run that was recorded."""
    folder = KEPT / name
    kept = json.loads((folder / "span.json").read_text())
    moment = Moment(**kept["moment"]) if kept["moment"] else None
    span = Span(kept["start"], kept["end"], kept["variables"], moment)
    with shown(folder) as (found, consoles):
        for board in RECORDERS[name][1]:
            (consoles / f"{board.name}.html").write_text(template(board, span, found))
            photograph(f"{found.url}/consoles/{board.name}.html", FOLDER / f"{board.name}.png")


@contextmanager
def shown(folder: Path) -> Iterator[tuple[Prometheus, Path]]:
    """Run a Prometheus over the data of a run; yield it and the folder of its console templates.

    Debian's package keeps the parts of its pages in files.
    """
    program = Home.of_user().bin / "prometheus"
    files, consoles = program.resolve().parents[1] / "usr/share", folder / "consoles"
    consoles.mkdir(exist_ok=True)
    (folder / "shown.yaml").write_text("{}")
    address = f"127.0.0.1:{free_port()}"
    command = (
        str(program),
        f"--config.file={folder / 'shown.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        f"--web.console.templates={consoles}",
        f"--web.console.libraries={files / 'doc/prometheus/examples/console_libraries'}",
        f"--web.local-assets={files / 'prometheus/web'}",
    )
    with running(*command, log=folder / "shown.log", ready=f"http://{address}/-/ready"):
        yield Prometheus(f"http://{address}"), consoles


def photograph(url: str, file: Path) -> None:
    """Write a page as a PNG once its graphs are there."""
    command = [
        str(Home.of_user().bin / "chromium"),
        "--no-sandbox",  # it may run as root, and sees pages of this machine only
        "--hide-scrollbars",
        f"--window-size={WIDTH},{HIGHEST}",
        "--virtual-time-budget=20000",
        f"--screenshot={file}",
        url,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=180)
    with Image.open(file) as taken:
        picture = taken.convert("RGB")
    white = Image.new("RGB", picture.size, "white")
    _, _, _, bottom = ImageChops.difference(picture, white).getbbox() or (0, 0, 0, HIGHEST)
    picture.crop((0, 0, WIDTH, bottom + MARGIN)).quantize(COLOURS).save(file, optimize=True)


if __name__ == "__main__":
    action, *names = sys.argv[1:]
    for chosen in names or RECORDERS:
        {"record": record, "draw": draw}[action](chosen)
