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

function axis(scale, side) {
  return { scale, side, size: 70, stroke: color("--soft"), grid: { show: side === 3, stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
}

function draw(box) {
  const data = JSON.parse(box.dataset.series);
  drawn.get(box)?.destroy();
  const plot = new uPlot({
    width: box.clientWidth,
    height: 220,
    hooks: {
      draw: [(u) => {
        lines(u, data.epochs, color("--busy"), [4, 4]);
        lines(u, data.faults, color("--bad"), []);
      }],
    },
    scales: { lag: { range: (_, low, high) => [0, Math.max(high, 1)] }, rate: { range: (_, low, high) => [0, Math.max(high, 1)] } },
    axes: [{ ...axis("x", 2), size: 40 }, axis("lag", 3), axis("rate", 1)],
    series: [
      {},
      { label: "lag", scale: "lag", stroke: color("--lag"), width: 2, spanGaps: true },
      { label: "records/s", scale: "rate", stroke: color("--rate"), width: 2 },
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
