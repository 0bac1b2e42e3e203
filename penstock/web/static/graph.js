// The query graph: drawn once for a structure, with places from the server; figures change with every sample.
import { formatBytes, formatCount, formatNumber, setText } from "./format.js";

const NS = "http://www.w3.org/2000/svg";
const ROWS_OUT = 0, STATE_ROWS = 1, BYTES = 2, WAITING = 3, SUPPRESSED = 4, DEMANDED = 5, COMPLETE = 6, POLICY = 7, MEMBERS = 8;
const MOST_HEIGHT = 0.62;  // of the window, as in page.css
const LEAST_SCALE = 0.8;  // below it text is too small, and the graph scrolls
const SHORT = ["source", "table", "query"];

function draw(tag, attributes, parent) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.append(made);
  return made;
}

export class GraphView {
  constructor(root, select) {
    this.root = root;
    this.select = select;
    this.boxes = [];
    this.lines = [];
  }

  // Draw a picture. `places` are the places of queries by name.
  show(graph, places) {
    const scroll = [this.root.scrollLeft, this.root.scrollTop];
    const svg = draw("svg", { width: graph.width, height: graph.height, viewBox: `0 0 ${graph.width} ${graph.height}` });
    const byId = new Map(graph.boxes.map((box) => [box.id, box]));
    const entering = new Map();
    for (const line of graph.lines) entering.set(line.target, (entering.get(line.target) ?? 0) + 1);
    this.places = places;
    const paths = graph.lines.map((line) => draw("path", { class: line.ets ? "arc ets" : "arc", d: line.path, "stroke-width": 1.5 }, svg));
    this.boxes = graph.boxes.map((box) => this.drawBox(box, svg));
    this.lines = graph.lines.map((line, place) => {  // the rate stands above the end of its arc
      const target = byId.get(line.target), readable = target.height / (entering.get(line.target) + 1) > 9;
      const text = readable ? draw("text", { class: "rate", x: line.end[0] - 7, y: line.end[1] - 4, "text-anchor": "end" }, svg) : null;
      return { line, path: paths[place], text, source: byId.get(line.source), target };
    });
    const room = Math.min(this.root.clientWidth / graph.width, (MOST_HEIGHT * innerHeight) / graph.height);
    const scale = Math.min(1, Math.max(LEAST_SCALE, room));
    svg.setAttribute("width", Math.round(graph.width * scale));
    svg.setAttribute("height", Math.round(graph.height * scale));
    this.root.replaceChildren(svg);
    [this.root.scrollLeft, this.root.scrollTop] = scroll;
  }

  drawBox(box, svg) {
    const kind = SHORT.includes(box.kind) ? box.kind : box.kind === "join" ? "join" : "other";
    const group = draw("g", { class: kind, transform: `translate(${box.x} ${box.y})` }, svg);
    draw("rect", { class: "box", rx: 6, width: box.width, height: box.height }, group);
    const clip = (text, size) => { const most = Math.floor((box.width - 16) / size); return text.length > most ? `${text.slice(0, most - 1)}…` : text; };
    const write = (name, row, text = "") => { const made = draw("text", { class: name, x: 9, y: 19 + 16 * row }, group); made.textContent = clip(text, name === "head" ? 7.3 : 6.65); return made; };
    write("head", 0, box.title);
    draw("title", {}, group).textContent = [box.title, ...box.notes].join("\n");
    const lines = SHORT.includes(box.kind) ? 1 : 2;
    const texts = Array.from({ length: lines }, (_, row) => write("note", 1 + row));
    const gauges = box.inner ? { demanded: this.drawGauge(group, 9, "demanded"), complete: this.drawGauge(group, 107, "complete") } : {};
    box.notes.forEach((note, row) => write("note", 1 + lines + (box.inner ? 1 : 0) + row, note));
    if (box.queries.length) {
      const act = () => (box.count === 1 ? this.select(box.queries[0]) : document.getElementById("search").focus());
      group.setAttribute("tabindex", 0);
      group.setAttribute("role", "button");
      group.addEventListener("click", act);
      group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } });
    }
    return { box, texts, gauges, show: (row, text) => setText(texts[row], clip(text, 6.65)) };
  }

  drawGauge(group, x, name) {
    const gauge = draw("g", { transform: `translate(${x} 59)`, visibility: "hidden" }, group);
    draw("text", { class: "note", x: 0, y: 8 }, gauge).textContent = name;
    const title = draw("title", {}, gauge);
    draw("rect", { class: "track", x: 57, y: 1, width: 32, height: 7, rx: 3 }, gauge);
    return { gauge, title, name, bar: draw("rect", { class: "fill", x: 57, y: 1, width: 0, height: 7, rx: 3 }, gauge) };
  }

  // Show the figures of a sample; rates are those of operators and queries by place.
  update(sample, rates) {
    const add = (names, values) => names.reduce((total, name) => total + (values[this.places.get(name)] ?? 0), 0);
    for (const { box, gauges, show } of this.boxes) {
      if (box.kind === "query") { show(0, `${formatNumber(add(box.queries, sample.queries))} results`); continue; }
      const rows = box.members.map((place) => sample.operators[place]).filter(Boolean);
      if (!rows.length) continue;
      const sum = (key) => rows.reduce((total, row) => total + (row[key] || 0), 0);
      const [first] = rows;
      if (box.kind === "source") { show(0, `${formatNumber(sum(ROWS_OUT))} rows`); continue; }
      if (box.kind === "table") { show(0, `${formatNumber(sum(STATE_ROWS))} rows, static`); continue; }
      const what = box.count > 1 ? "over the same streams" : first[POLICY] ? `state ${first[POLICY]}${box.inner && first[COMPLETE] === null ? ", no rows kept" : ""}` : box.kind;
      show(0, first[MEMBERS] > 1 && box.count === 1 ? `${what}, ${formatCount(first[MEMBERS])} queries` : what);
      const figures = [`${formatNumber(sum(STATE_ROWS))} rows`];
      if (sum(BYTES)) figures.push(formatBytes(sum(BYTES)));
      if (sum(SUPPRESSED)) figures.push(`${formatNumber(sum(SUPPRESSED))} not built`);
      else if (sum(WAITING)) figures.push(`${formatNumber(sum(WAITING))} wait`);
      show(1, figures.join(", "));
      if (gauges.demanded && rows.length === 1) { this.setGauge(gauges.demanded, first[DEMANDED] ?? 1); this.setGauge(gauges.complete, first[COMPLETE]); }
    }
    for (const { line, path, text, source, target } of this.lines) {
      const rate = target.kind === "query" ? add(target.queries, rates.queries) : source.members.reduce((total, place) => total + (rates.operators[place] || 0), 0);
      if (text) setText(text, rate > 0 ? `${formatNumber(rate)}/s` : "");
      path.setAttribute("class", `arc${line.ets ? " ets" : ""}${rate > 0 ? " busy" : ""}`);
      path.setAttribute("stroke-width", (1.2 + Math.min(4, Math.log10(1 + (rate || 0)))).toFixed(1));
    }
  }

  setGauge({ gauge, bar, title, name }, value) {
    gauge.setAttribute("visibility", value === null || value === undefined ? "hidden" : "visible");
    if (value === null || value === undefined) return;
    bar.setAttribute("width", (32 * value).toFixed(1));
    bar.setAttribute("class", value < 1 ? "fill partial" : "fill");
    setText(title, `${name}: ${(100 * value).toFixed(0)} %`);
  }
}
