// The query graph: drawn once for a structure, with places from the server; figures change with every sample.
import { formatBytes, formatNumber, setText } from "./format.js";

const NS = "http://www.w3.org/2000/svg";
const ROWS_OUT = 0, STATE_ROWS = 1, BYTES = 2, WAITING = 3, SUPPRESSED = 4, DEMANDED = 5, COMPLETE = 6, POLICY = 7, MEMBERS = 8;
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
    this.places = places;
    this.lines = graph.lines.map((line) => {
      const path = draw("path", { class: line.ets ? "arc ets" : "arc", d: line.path, "stroke-width": 1.5 }, svg);
      const text = draw("text", { class: "rate", x: line.end[0] + 6, y: line.end[1] - 5 }, svg);
      return { line, path, text, source: byId.get(line.source), target: byId.get(line.target) };
    });
    const labelled = new Set();
    for (const each of this.lines) {  // one rate for each box that several arcs leave; queries have their own
      const own = each.target.kind === "query";
      if (!own && labelled.has(each.line.source)) each.text.remove();
      labelled.add(each.line.source);
      if (own) { each.text.setAttribute("x", each.target.x - 6); each.text.setAttribute("y", each.target.y + each.target.height / 2 - 5); each.text.setAttribute("text-anchor", "end"); }
    }
    this.boxes = graph.boxes.map((box) => this.drawBox(box, svg));
    const scale = Math.min(1, Math.max(0.85, this.root.clientWidth / graph.width));
    svg.setAttribute("width", Math.round(graph.width * scale));
    svg.setAttribute("height", Math.round(graph.height * scale));
    this.root.replaceChildren(svg);
    [this.root.scrollLeft, this.root.scrollTop] = scroll;
  }

  drawBox(box, svg) {
    const kind = SHORT.includes(box.kind) ? box.kind : box.kind === "join" ? "join" : "other";
    const group = draw("g", { class: kind, transform: `translate(${box.x} ${box.y})` }, svg);
    draw("rect", { class: "box", rx: 6, width: box.width, height: box.height }, group);
    const most = Math.floor((box.width - 18) / 7.3);
    const clip = (text, limit = most) => (text.length > limit ? `${text.slice(0, limit - 1)}…` : text);
    draw("text", { class: "head", x: 9, y: 19 }, group).textContent = clip(box.title);
    draw("title", {}, group).textContent = [box.title, ...box.notes].join("\n");
    const lines = SHORT.includes(box.kind) ? 1 : 2;
    const texts = Array.from({ length: lines }, (_, row) => draw("text", { class: "note", x: 9, y: 35 + 16 * row }, group));
    box.notes.slice(0, 8).forEach((note, row) => { if (!SHORT.includes(box.kind)) draw("text", { class: "note", x: 9, y: 67 + 16 * row }, group).textContent = clip(note, most + 2); });
    const gauges = {};
    if (kind === "join") {
      gauges.demanded = this.drawGauge(group, box.width - 78, 9, "demanded");
      gauges.complete = this.drawGauge(group, box.width - 42, 9, "complete");
    }
    if (box.queries.length === 1) {
      const name = box.queries[0];
      group.setAttribute("tabindex", 0);
      group.setAttribute("role", "button");
      group.addEventListener("click", () => this.select(name));
      group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.select(name); } });
    }
    return { box, texts, gauges, clip };
  }

  drawGauge(group, x, y, name) {
    const gauge = draw("g", { transform: `translate(${x} ${y})`, visibility: "hidden" }, group);
    const title = draw("title", {}, gauge);
    draw("rect", { class: "track", width: 32, height: 7, rx: 3 }, gauge);
    return { gauge, title, name, bar: draw("rect", { class: "fill", width: 0, height: 7, rx: 3 }, gauge) };
  }

  // Show the figures of a sample; rates are those of operators and queries by place.
  update(sample, rates) {
    for (const { box, texts, gauges, clip } of this.boxes) {
      if (box.kind === "query") {
        const found = box.queries.length === 1 ? sample.queries[this.places.get(box.queries[0])] : null;
        setText(texts[0], found === null || found === undefined ? "" : `${formatNumber(found)} results`);
        continue;
      }
      const rows = box.members.map((place) => sample.operators[place]).filter(Boolean);
      if (!rows.length) continue;
      const sum = (key) => rows.reduce((total, row) => total + (row[key] || 0), 0);
      const [first] = rows;
      if (box.kind === "source") { setText(texts[0], `${formatNumber(sum(ROWS_OUT))} rows`); continue; }
      if (box.kind === "table") { setText(texts[0], `${formatNumber(sum(STATE_ROWS))} rows, static`); continue; }
      const shared = first[MEMBERS] > 1 ? `, ${formatNumber(first[MEMBERS])} queries` : "";
      setText(texts[0], clip(`${first[POLICY] ?? box.kind}${shared}`));
      const held = sum(BYTES) ? ` ${formatBytes(sum(BYTES))}` : "";
      const put = sum(SUPPRESSED) ? ` −${formatNumber(sum(SUPPRESSED))}` : "";
      const wait = sum(WAITING) ? ` wait ${formatNumber(sum(WAITING))}` : "";
      setText(texts[1], clip(`${formatNumber(sum(STATE_ROWS))} rows${held}${put}${wait}`));
      if (gauges.demanded && rows.length === 1) { this.setGauge(gauges.demanded, first[DEMANDED]); this.setGauge(gauges.complete, first[COMPLETE]); }
    }
    for (const { line, path, text, source, target } of this.lines) {
      const query = target.kind === "query" && target.queries.length === 1 ? this.places.get(target.queries[0]) : undefined;
      const rate = query !== undefined ? rates.queries[query] : source.members.reduce((total, place) => total + (rates.operators[place] || 0), 0);
      setText(text, rate > 0 ? `${formatNumber(rate)}/s` : "");
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
