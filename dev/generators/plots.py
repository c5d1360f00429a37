"""The plots of docs/benchmarks.md: SVG that depends on nothing but the figures."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from generators.figures import Distribution, Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH: Final = 8.0
"""Inches."""
COLOURS: Final = {
    "driver": "#4477AA",
    "worker": "#66CCEE",
    "master": "#BBBBBB",
    "cassandra": "#228833",
    "kafka": "#CCBB44",
}
"""Paul Tol's bright scheme, which colour-blind readers can distinguish."""
OURS: Final = "#4477AA"
THEIRS: Final = "#EE6677"
LINES: Final = ("#4477AA", "#EE6677", "#228833", "#CCBB44")
STYLE: Final[Any] = {
    "svg.hashsalt": "fencepost",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "figure.facecolor": "white",
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing of a bench's figures. `height` is in inches, of one panel."""

    caption: str
    draw: Callable[[Sequence[Axes], Figures], None]
    height: Callable[[Figures], float]
    panels: int = 1


def svg(plot: Plot, figures: Figures) -> bytes:
    """Return the picture; its description holds the digest of what it was drawn from."""
    import matplotlib as mpl  # noqa: PLC0415 - half a second that the page alone does not need
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(STYLE):
        picture = Figure(figsize=(WIDTH, plot.height(figures)), layout="constrained")
        FigureCanvasSVG(picture)
        axes = picture.subplots(1, plot.panels, squeeze=False)[0]
        plot.draw(list(axes), figures)
        into = io.BytesIO()
        facts = {"Title": plot.caption, "Description": f"from {figures.digest}", "Date": None, "Creator": None}
        picture.savefig(into, format="svg", metadata=facts)
    lines = into.getvalue().decode().splitlines()
    return ("\n".join(line.rstrip() for line in lines) + "\n").encode()


def rates(axes: Sequence[Axes], figures: Figures) -> None:
    """Bars of the medians, and a dot for each round."""
    (ax,) = axes
    names = figures.contestants()
    for place, name in enumerate(names):
        sample = figures.sample(name)
        colour = THEIRS if name.startswith("Structured") else OURS
        light = 0.5 if "without" in name else 1.0
        ax.barh(place, sample.median, color=colour, alpha=light, height=0.62)
        ax.plot(sample.values, [place] * len(sample.values), "o", color="black", markersize=3)
        ax.annotate(
            f"{sample.median:,.0f}", (max(sample.values), place), (6, 0), textcoords="offset points", va="center"
        )
    _names(ax, names)
    ax.set_xlabel("rows per second: median, and each round")
    ax.xaxis.set_major_formatter(lambda value, _: _short(value))
    ax.margins(x=0.16)


def spent(axes: Sequence[Axes], figures: Figures) -> None:
    """Stacked bars of CPU time per row."""
    (ax,) = axes
    names = figures.contestants()
    ends = [0.0] * len(names)
    for role in figures.roles():
        widths = [figures.spent(name).get(role, 0.0) for name in names]
        ax.barh(range(len(names)), widths, left=ends, color=COLOURS[role], label=role, height=0.62)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    for place, end in enumerate(ends):
        ax.annotate(f"{end:.1f}", (end, place), (6, 0), textcoords="offset points", va="center")
    _names(ax, names)
    ax.set_xlabel("CPU-µs per row, median of the rounds")
    ax.figure.legend(ncols=len(figures.roles()), loc="outside upper right")
    ax.margins(x=0.1)


def growth(axes: Sequence[Axes], figures: Figures) -> None:
    """Milliseconds per batch by partitions and sinks, MB/s by size."""
    partitions, sinks, sizes = (list(names) for names in figures.families().values())
    for ax, names, what in ((axes[0], partitions, "partitions"), (axes[1], sinks, "sinks")):
        at = [_leading(name) for name in names]
        for share, label, colour in ((0.5, "p50", LINES[0]), (0.99, "p99", LINES[1])):
            ax.plot(at, [figures.sample(name).at(share) for name in names], "o-", color=colour, label=label)
        ax.set_title(f"{what}: ms per batch")
        _logarithmic(ax, at, what)
        ax.set_ylim(bottom=0)
        if names:
            ax.legend()
    at = [_leading(name.removeprefix("records of ")) for name in sizes]
    axes[2].plot(at, [figures.sample(f"{name}: bytes").median for name in sizes], "o-", color=LINES[2])
    axes[2].set_title("size of a record: MB/s")
    _logarithmic(axes[2], at, "bytes")
    axes[2].set_ylim(bottom=0)


def _logarithmic(ax: Axes, at: Sequence[float], label: str) -> None:
    ax.set_xscale("log")
    ax.set_xticks(at, [_short(value) for value in at])
    ax.minorticks_off()
    ax.set_xlabel(label)
    ax.grid(axis="y", alpha=0.3)


def distributions(*names: str, aims: Mapping[str, float] | None = None) -> Callable[[Sequence[Axes], Figures], None]:
    """Return a drawing of the share of values below each time, of samples in ms."""

    def draw(axes: Sequence[Axes], figures: Figures) -> None:
        (ax,) = axes
        shares = [percent / 100 for percent in range(101)]
        highest = 0.0
        for name, colour in zip(names, cycle(LINES), strict=False):
            sample = figures.sample(name)
            ax.plot([sample.at(share) for share in shares], shares, color=colour, label=_labelled(sample))
            highest = max(highest, sample.at(0.99))
        for label, value in (aims or {}).items():
            ax.axvline(value, color="#888888", linestyle=":", linewidth=1)
            ax.annotate(label, (value, 0.6), (3, 0), textcoords="offset points", color="#555555")
            highest = max(highest, value)
        ax.set_xlim(0, highest * 1.25)
        ax.set_ylim(0, 1.02)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.set_xlabel("ms")
        ax.set_ylabel("share that took at most so long")
        ax.grid(alpha=0.3)
        ax.legend(loc="lower right")

    return draw


def quarters(axes: Sequence[Axes], figures: Figures) -> None:
    """Bars of p50 and p99 by the quarters of a run."""
    (ax,) = axes
    names = [one.name.strip() for one in figures.samples if one.name.strip().startswith("quarter") and one.n]
    for offset, (share, label, colour) in enumerate(((0.5, "p50", LINES[0]), (0.99, "p99", LINES[1]))):
        values = [figures.sample(name).at(share) for name in names]
        places = [place + (offset - 0.5) * 0.38 for place in range(len(names))]
        bars = ax.bar(places, values, width=0.36, color=colour, label=label)
        ax.bar_label(bars, [f"{value:.0f}" for value in values])
    ax.set_xticks(range(len(names)), names)
    ax.set_ylabel("ms per batch of 1,000")
    ax.legend()


def steps(first: str) -> Callable[[Sequence[Axes], Figures], None]:
    """Return a drawing of the steps after the sample `first`, whose sum it is: their medians end to end.

    The steps of an earlier build, if there are any, begin at zero: they follow a total whose name begins as `first`.
    """

    def draw(axes: Sequence[Axes], figures: Figures) -> None:
        (ax,) = axes
        parts = [one for one in figures.samples if one.name.strip() != first and one.n]
        end = 0.0
        for place, one in enumerate(parts):
            if one.name.startswith(first):
                end = 0.0
            ax.barh(place, one.at(0.5), left=end, color=LINES[0], height=0.62)
            ax.annotate(
                f"{one.at(0.5):.1f}", (end + one.at(0.5), place), (5, 0), textcoords="offset points", va="center"
            )
            end += 0.0 if one.name.startswith(first) else one.at(0.5)
        total = figures.sample(first)
        ax.set_title(f"{first}: p50 {total.at(0.5):.1f} s, p99 {total.at(0.99):.1f} s, n = {total.n}")
        _names(ax, [one.name.strip() for one in parts])
        ax.set_xlabel("seconds, medians of the steps end to end")
        ax.margins(x=0.1)

    return draw


def stateful(axes: Sequence[Axes], figures: Figures) -> None:
    """Bars of p50 by query, a panel for each size of the batches, and p95 as dots."""
    for ax, size in zip(axes, ("1,000", "100,000"), strict=True):
        found = [one for one in figures.samples if one.n and one.name.endswith(f", {size}") and one.unit == "ms"]
        for place, one in enumerate(found):
            ax.barh(place, one.at(0.5), color=OURS if one.name.startswith("Fencepost") else THEIRS, height=0.62)
            ax.plot([one.at(0.95)], [place], "o", color="black", markersize=3)
            ax.annotate(f"{one.at(0.5):,.0f}", (one.at(0.95), place), (6, 0), textcoords="offset points", va="center")
        _names(ax, [one.name.removesuffix(f", {size}") for one in found])
        ax.set_title(f"batches of {size}: ms, p50 and p95")
        ax.margins(x=0.2)


def _names(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)


def _labelled(sample: Distribution) -> str:
    return f"{sample.name.strip()}: p50 {sample.at(0.5):,.3g}, p99 {sample.at(0.99):,.4g}"


def _leading(name: str) -> float:
    return float(name.partition(" ")[0].replace(",", ""))


def _short(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def _by_contestant(figures: Figures) -> float:
    return 1.1 + 0.36 * len(figures.contestants())


def _by_step(figures: Figures) -> float:
    return 1.2 + 0.32 * len(figures.samples)


PLOTS: Final[Mapping[str, Mapping[str, Plot]]] = {
    "peers": {
        "peers-rate": Plot("Rows per second of Fencepost and of Structured Streaming", rates, _by_contestant),
        "peers-cpu": Plot("CPU time per row by process", spent, _by_contestant),
    },
    "growth": {
        "growth": Plot("What more partitions, more sinks and larger records cost", growth, lambda _: 3.0, panels=3)
    },
    "latency": {
        "latency": Plot(
            "Time from a record to the commit that covers it, at 1,000 records per second",
            distributions("record to commit", aims={"aim of p50": 400.0, "aim of p99": 1000.0}),
            lambda _: 3.2,
        )
    },
    "batch": {"batch": Plot("Batches of 1,000 rows, by quarters of a run", quarters, lambda _: 3.0)},
    "commit": {
        "commit": Plot(
            "A commit at the fence beside a bare lightweight transaction",
            distributions("fence commit", "bare conditional update", "SERIAL read of the fence"),
            lambda _: 3.2,
        )
    },
    "backlog": {"backlog-cpu": Plot("CPU time per row by process, one worker and two", spent, _by_contestant)},
    "recovery": {"recovery": Plot("From SIGKILL of the driver to the next commit", steps("kill to commit"), _by_step)},
    "metrics": {"metrics-cpu": Plot("CPU time per row by process, with scrapes and without", spent, _by_contestant)},
    "stateful": {
        "stateful": Plot(
            "A batch from commit to commit, beside native Structured Streaming", stateful, lambda _: 3.4, panels=2
        )
    },
    "memtables": {"memtables": Plot("CPU time per row by memtable", spent, _by_contestant)},
}
"""By bench, the plots and their files' names."""
