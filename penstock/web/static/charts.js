// Time lines with uPlot. Changes and decisions are vertical marks on all of them.
import uPlot from "./vendor/uPlot.esm.js";
import { element, formatBytes, formatNumber, formatTime, setText } from "./format.js";

const MOST = 900, HEIGHT = 120;
const CHARTS = [
  { title: "Throughput", unit: "rows/s", series: [["tuples in", (p) => p.rows_in], ["results", (p) => p.results]] },
  { title: "Time of a push or micro-batch", unit: "ms", series: [["mean", (p) => p.latency]] },
  { title: "Stream lag", unit: "s or ticks behind the furthest", lags: true, series: [] },
  { title: "Windows and states", unit: "bytes", format: formatBytes, series: [["memory", (p) => p.memory]] },
  { title: "Rows not built (demand)", unit: "rows/s", series: [["suppressed", (p) => p.suppressed]] },
  { title: "Completeness and freshness", unit: "%", range: [0, 105], series: [["complete", (p) => 100 * p.completeness], ["fresh", (p) => 100 * p.freshness]] },
];

export class Charts {
  constructor(root) {
    Object.assign(this, { root, points: [], events: [], charts: [], streams: "" });
    new ResizeObserver(() => this.resize()).observe(root);
  }

  reset(points, events) {
    this.points = points.slice(-MOST);
    this.events = events;
    this.build();
  }

  add(point, events) {
    if (point && point.time !== this.points.at(-1)?.time) this.points.push(point);
    if (this.points.length > MOST) this.points.splice(0, this.points.length - MOST);
    this.events = [...this.events, ...events].slice(-300);
  }

  build() {
    for (const { plot } of this.charts) plot.destroy();
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    this.streams = Object.keys(this.points.at(-1)?.lags ?? {}).join("\n");
    this.colors = { mark: color("--c4") };
    const figures = [];
    this.charts = CHARTS.map((chart) => {
      const series = chart.lags ? this.streams.split("\n").filter(Boolean).slice(0, 6).map((name) => [name, (p) => p.lags[name]]) : chart.series;
      const values = series.map(() => element("b"));
      const keys = series.map(([name], place) => element("span", { class: `key k${place % 6 + 1}` }, `${name} `, values[place]));
      const caption = element("figcaption", {}, element("b", {}, chart.title), ` ${chart.unit}`, element("div", { class: "keys" }, ...keys));
      const figure = element("figure", {}, caption);
      figures.push(figure);
      const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      const format = chart.format ?? formatNumber;
      const plot = new uPlot({
        width: 290, height: HEIGHT, legend: { show: false }, cursor: { show: false },
        scales: { y: { range: (_, low, high) => chart.range ?? [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, space: 70, size: 26, values: (_, ticks) => ticks.map(formatTime) }, { ...axis, size: 52, values: (_, ticks) => ticks.map(format) }],
        series: [{}, ...series.map((_, place) => ({ stroke: color(`--c${place % 6 + 1}`), width: 1.6, points: { show: false }, spanGaps: true }))],
        hooks: { draw: [(drawn) => this.drawMarks(drawn)] },
      }, [[]], figure);
      plot.root.setAttribute("role", "img");
      plot.root.setAttribute("aria-label", `${chart.title} over time`);
      return { plot, series, figure, values, format };
    });
    this.root.replaceChildren(...figures);
    this.resize();
    this.draw();
  }

  resize() {
    for (const { plot, figure } of this.charts) if (figure.clientWidth) plot.setSize({ width: figure.clientWidth, height: HEIGHT });
  }

  draw() {
    if (Object.keys(this.points.at(-1)?.lags ?? {}).join("\n") !== this.streams) { this.build(); return; }
    const times = this.points.map((point) => point.time);
    for (const { plot, series, values, format } of this.charts) {
      plot.setData([times, ...series.map(([, read]) => this.points.map((point) => read(point) ?? null))]);
      const last = this.points.at(-1);
      series.forEach(([, read], place) => setText(values[place], last ? format(read(last) ?? null) : ""));
    }
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = this.colors.mark;
    ctx.setLineDash([3, 3]);
    for (const event of this.events) {
      if (event.time < plot.scales.x.min || event.time > plot.scales.x.max) continue;
      const x = plot.valToPos(event.time, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }
}
