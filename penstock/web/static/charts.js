// Time lines with uPlot. Changes and decisions are vertical marks on all of them.
import uPlot from "./vendor/uPlot.esm.js";
import { describeNumbers, element, formatBytes, formatDuration, formatNumber, formatTime, setText } from "./format.js";

const MOST = 900, HEIGHT = 130, NEAR = 8, LABEL_ROOM = 56, LEAST_SECONDS = 30, LABEL_HEIGHT = 14, MOST_LAGS = 6;
// A chart whose series are their `own`: results have an axis on the right, because there can be many times more of them.
const CHARTS = [
  { title: "Throughput", unit: "rows/s", own: true, series: [["tuples in", (p) => p.rows_in], ["results", (p) => p.results]] },
  { title: "Time of a push or micro-batch", unit: "", format: (value) => formatDuration(value / 1000), clips: true, series: [["mean", (p) => p.latency]] },
  { title: "Lag of streams", unit: "behind the furthest", lags: true, series: [] },
  { title: "Windows and states", unit: "", format: formatBytes, series: [["memory", (p) => p.memory]] },
  { title: "Rows not built (demand)", unit: "rows/s", series: [["suppressed", (p) => p.suppressed]] },
  { title: "Completeness and freshness", unit: "%", range: [0, 105], series: [["complete", (p) => 100 * p.completeness], ["fresh", (p) => 100 * p.freshness]] },
];

// Charts span half a minute at least, so that times below them differ.
function rangeOfTime(times) {
  const end = times.at(-1) ?? Date.now() / 1000;
  return [Math.min(times[0] ?? end, end - LEAST_SECONDS), end];
}

// The largest value, or less where a few values would leave the others at the bottom; they are cut off at the top.
function findTop(values, high) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  const usual = sorted[Math.floor(0.95 * (sorted.length - 1))] ?? high;
  return high > 5 * usual ? 2 * usual : high;
}

export class Charts {
  // `say` gets the text of the change or decision below the pointer, or nothing.
  constructor(root, say) {
    Object.assign(this, { root, say, points: [], events: [], charts: [], names: new Set(), drawn: 0, inTicks: false, at: null });
    new ResizeObserver(() => this.resize()).observe(root);
  }

  reset(points, events) {
    this.points = points.slice(-MOST);
    this.events = events;
    this.names = new Set(points.flatMap((point) => Object.keys(point.lags)));
    this.build();
  }

  add(point, events) {
    if (point && point.time !== this.points.at(-1)?.time) {
      this.points.push(point);
      Object.keys(point.lags).forEach((name) => this.names.add(name));
    }
    if (this.points.length > MOST) this.points.splice(0, this.points.length - MOST);
    this.events = [...this.events, ...events].slice(-300);
  }

  build() {
    for (const { plot } of this.charts) plot.destroy();
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    this.drawn = this.names.size;
    this.colors = { mark: color("--c4") };
    const figures = [];
    this.charts = CHARTS.map((chart) => {
      const series = chart.lags ? this.findFurthest().map((name) => [name, (p) => p.lags[name]]) : chart.series;
      const unit = chart.lags && this.names.size > MOST_LAGS ? `${chart.unit}, ${MOST_LAGS} of ${this.names.size}` : chart.unit;
      const cut = element("span", { class: "cut" });
      const values = series.map(() => element("b"));
      const keys = series.map(([name], place) => element("span", { class: `key k${place % 6 + 1}` }, `${name} `, values[place]));
      const caption = element("figcaption", {}, element("b", {}, chart.title), ` ${unit}`, element("div", { class: "keys" }, ...keys, cut));
      const figure = element("figure", {}, caption);
      figures.push(figure);
      const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      const format = chart.lags && !this.inTicks ? formatDuration : chart.format ?? formatNumber;
      const plot = new uPlot({
        width: 290, height: HEIGHT, legend: { show: false },
        cursor: { y: false, drag: { setScale: false, x: false, y: false }, sync: { key: "time lines" }, points: { size: 5 } },
        padding: [LABEL_HEIGHT, chart.own ? 0 : 24, 0, 0],
        scales: { x: { range: (drawn) => rangeOfTime(drawn.data[0]) }, y: { range: (drawn, low, high) => chart.range ?? [0, 1.1 * (chart.clips ? findTop(drawn.data[1], high) : high) || 1] }, right: { range: (_, low, high) => [0, 1.1 * high || 1] } },
        axes: [{ ...axis, space: 70, size: 26, values: (_, ticks) => ticks.map(formatTime) }, { ...axis, size: 52, values: (_, ticks) => ticks.map(format), ...(chart.own && { stroke: color("--c1") }) },
          ...(chart.own ? [{ ...axis, scale: "right", side: 1, size: 52, grid: { show: false }, stroke: color("--c2"), values: (_, ticks) => ticks.map(format) }] : [])],
        series: [{}, ...series.map((_, place) => ({ stroke: color(`--c${place % 6 + 1}`), ...(chart.own && place ? { scale: "right", dash: [6, 3] } : {}), width: 1.6, points: { show: false }, spanGaps: true }))],
        hooks: { draw: [(drawn) => this.drawMarks(drawn)], setCursor: [(drawn) => this.showAt(drawn)] },
      }, [[]], figure);
      plot.root.setAttribute("role", "img");
      plot.root.setAttribute("aria-label", `${chart.title} over time`);
      return { plot, series, figure, values, format, cut, clips: chart.clips };
    });
    this.root.replaceChildren(...figures);
    this.resize();
    this.draw();
  }

  // The streams that are furthest behind, in the order in which they are declared.
  findFurthest() {
    const lags = this.points.at(-1)?.lags ?? {}, names = [...this.names];
    const chosen = new Set(names.toSorted((a, b) => (lags[b] ?? 0) - (lags[a] ?? 0)).slice(0, MOST_LAGS));
    return names.filter((name) => chosen.has(name));
  }

  resize() {
    for (const { plot, figure } of this.charts) if (figure.clientWidth) plot.setSize({ width: figure.clientWidth, height: HEIGHT });
  }

  draw() {
    if (this.names.size !== this.drawn) { this.build(); return; }
    const times = this.points.map((point) => point.time);
    for (const { plot, series } of this.charts) plot.setData([times, ...series.map(([, read]) => this.points.map((point) => read(point) ?? null))]);
    this.showValues();
  }

  // The values below the pointer, or the newest ones.
  showValues() {
    const point = this.points[this.at ?? this.points.length - 1];
    for (const { cut, format, clips } of this.charts) if (clips) {
      const values = this.points.map((point) => point.latency), most = Math.max(0, ...values);
      setText(cut, findTop(values, most) < most ? `highest ${format(most)}, above the chart` : "");
    }
    for (const { series, values, format } of this.charts) series.forEach(([, read], place) => setText(values[place], point ? format(read(point) ?? null) : ""));
  }

  showAt(plot) {
    const { idx, left } = plot.cursor;
    if (plot.cursor.event === undefined && idx === undefined) return;
    this.at = left >= 0 && idx !== null && idx < this.points.length ? idx : null;
    this.showValues();
    if (plot !== this.charts[0]?.plot) return;
    const near = this.at === null ? [] : this.events.filter((event) => Math.abs(plot.valToPos(event.time, "x") - left) < NEAR);
    const time = this.at === null ? "" : formatTime(this.points[this.at].time);
    this.say(near.length ? near.slice(-2).map((event) => [formatTime(event.time), event.text, describeNumbers(event.numbers)].filter(Boolean).join(" ")).join("; ") : time);
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = this.colors.mark;
    ctx.setLineDash([3, 3]);
    ctx.fillStyle = this.colors.mark;
    ctx.font = `${10 * devicePixelRatio}px system-ui`;
    ctx.textAlign = "left";
    let free = 0;
    for (const event of this.events) {
      if (event.time < plot.scales.x.min || event.time > plot.scales.x.max) continue;
      const x = plot.valToPos(event.time, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (x < free || x + LABEL_ROOM * devicePixelRatio > bbox.left + bbox.width) continue;  // no room for its name
      ctx.fillText(event.kind, x - 2 * devicePixelRatio, bbox.top - 4 * devicePixelRatio);
      free = x + LABEL_ROOM * devicePixelRatio;
    }
    ctx.restore();
  }
}
