// Lag and rate over time, with a line for each epoch and each fault.
"use strict";

const drawn = new Map();

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function lines(u, moments, stroke, dash) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  for (const moment of moments) {
    const x = Math.round(u.valToPos(moment, "x", true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

// As everywhere on the page: 24 hours, and a date only where it changes.
const DAY = "\n{YYYY}-{MM}-{DD}";
const MOMENTS = [
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", DAY, null, DAY, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", DAY, null, DAY, null, null, null, 1],
];

// Without a pointer on the chart, the legend has the newest values.
function showNewest(u) {
  if (u.cursor.idx == null) u.setLegend({ idx: u.data[0].length - 1 }, false);
}

function axis(scale, side) {
  return { scale, side, size: 70, stroke: color("--soft"), grid: { show: side === 3, stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
}

function draw(box) {
  const data = JSON.parse(box.dataset.series);
  drawn.get(box)?.destroy();
  const plot = new uPlot({
    width: box.clientWidth,
    height: 236,
    hooks: {
      ready: [showNewest],
      setCursor: [showNewest],
      draw: [(u) => {
        lines(u, data.epochs, color("--busy"), [4, 4]);
        lines(u, data.faults, color("--bad"), []);
      }],
    },
    scales: { lag: { range: (_, low, high) => [0, Math.max(high, 1)] }, rate: { range: (_, low, high) => [0, Math.max(high, 1)] } },
    axes: [{ ...axis("x", 2), size: 56, values: MOMENTS }, axis("lag", 3), axis("rate", 1)],
    series: [
      { label: "time", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
      { label: "lag", scale: "lag", stroke: color("--lag"), width: 2, spanGaps: true },
      { label: "records/s", scale: "rate", stroke: color("--rate"), width: 2, value: (_, rate) => rate == null ? "-" : Math.round(rate).toLocaleString("en") },
    ],
  }, [data.time, data.lag, data.rate], box);
  drawn.set(box, plot);
}

function drawAll() {
  for (const box of [...drawn.keys()]) {
    if (!box.isConnected) {
      drawn.get(box).destroy();
      drawn.delete(box);
    }
  }
  document.querySelectorAll(".chart[data-series]").forEach(draw);
}

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.querySelector(".chart")) drawAll();
});
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
