// The page: receives structures and samples, and hands them to its parts. Samples are drawn at most once a frame.
import { Charts } from "./charts.js";
import { Controls, readToken } from "./controls.js";
import { buildTable, element, formatBytes, describeNumbers, formatCount, formatDuration, formatNumber, formatTime, setText } from "./format.js";
import { GraphView } from "./graph.js";
import { QueryList } from "./queries.js";

const get = (id) => document.getElementById(id);
const CHART_MS = 500, DETAIL_MS = 2000, SMOOTH = 0.5, LEAST_SPAN = 0.05;
const STATES = { running: ["live", "live"], starting: ["the first micro-batch runs", ""] };

class Page {
  constructor() {
    Object.assign(this, { kind: "engine", structure: null, sample: null, before: null, chosen: null, due: false, chartsAt: 0, events: [] });
    this.rates = { operators: [], queries: [], streams: new Map() };
    this.graph = new GraphView(get("graph"), (name) => this.choose(name));
    this.list = new QueryList(get("list"), get("query-count"), get("search"), (name) => this.choose(name));
    this.charts = new Charts(get("charts"), (text) => setText(get("pointed"), text));
    this.controls = new Controls(this);
    this.streamRows = new Map();
    get("close").addEventListener("click", () => this.choose(null));
    get("whole").addEventListener("click", () => this.choose(null));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !get("dialog").open) this.choose(null);
      if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); get("search").focus(); }
    });
    this.setTheme(localStorage.getItem("penstock-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
    get("theme").addEventListener("click", () => this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true));
    setInterval(() => this.refresh(), DETAIL_MS);
    readToken();
    this.connect();
  }

  connect() {
    const source = new EventSource("/api/events");
    const on = (name, handle) => source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    on("structure", (structure) => this.showStructure(structure));
    on("history", ({ points, events }) => { this.events = []; get("events").replaceChildren(); this.addEvents(events); this.charts.reset(points, events); });
    on("sample", (sample) => this.takeSample(sample));
    on("problem", ({ message }) => { get("problem").hidden = false; setText(get("problem"), message); this.setState("no readings", "gone"); });
    source.addEventListener("error", () => this.setState("offline, connecting again", "gone"));
  }

  setState(text, kind) {
    setText(get("state"), text);
    get("state").className = `state ${kind}`;
  }

  setTheme(theme, keep = false) {
    document.documentElement.dataset.theme = theme;
    get("theme").textContent = theme === "dark" ? "Light" : "Dark";
    if (keep) localStorage.setItem("penstock-theme", theme);
    if (this.charts?.charts.length) this.charts.build();
  }

  findQuery(name) {
    return this.structure?.queries.find((query) => query.name === name);
  }

  showStructure(structure) {
    const keep = (before, now, rates) => { const old = new Map(before?.map((id, place) => [id, rates[place]])); return now.map((id) => old.get(id)); };
    const [operators, queries] = [structure.operators.map(([id]) => id), structure.queries.map((query) => query.name)];
    this.rates = { operators: keep(this.ids?.operators, operators, this.rates.operators), queries: keep(this.ids?.queries, queries, this.rates.queries), streams: this.rates.streams };
    this.ids = { operators, queries };
    this.structure = structure;
    this.kind = structure.kind;
    this.before = null;
    this.places = new Map(queries.map((name, place) => [name, place]));
    setText(get("title"), structure.title);
    document.title = `Penstock: ${structure.title}`;
    this.list.show(structure.queries);
    if (this.chosen && !this.places.has(this.chosen)) this.choose(null);
    else this.drawGraph();
  }

  async drawGraph() {
    let graph = this.structure.graph;
    if (this.chosen) {
      const answer = await fetch(`/api/graph?query=${encodeURIComponent(this.chosen)}`).then((got) => got.json()).catch(() => null);
      if (answer?.boxes) graph = answer;
    }
    get("whole").hidden = !this.chosen;
    this.graph.show(graph, this.places);
    if (this.sample?.version === this.structure.version) this.graph.update(this.sample, this.rates);
  }

  takeSample(sample) {
    if (!this.structure || sample.version !== this.structure.version) return;
    get("problem").hidden = true;
    this.setState(...(STATES[sample.state] ?? [sample.state, "gone"]));
    if (sample.state in STATES) this.measureRates(sample);
    else this.rates = { operators: [], queries: [], streams: new Map() };
    this.sample = sample;
    this.charts.add(sample.point, sample.events);
    this.addEvents(sample.events);
    if (!this.due && !document.hidden) { this.due = true; requestAnimationFrame(() => this.render()); }
  }

  measureRates(sample) {
    const span = this.before ? sample.time - this.before.time : 0;
    if (this.before && span < LEAST_SPAN) return;  // a reading just after a change: too short for a rate
    if (span > 0) {
      const smooth = (old, rate) => (old === undefined ? rate : old * SMOOTH + rate * (1 - SMOOTH) < 0.05 ? 0 : old * SMOOTH + rate * (1 - SMOOTH));
      const measure = (now, before, old) => smooth(old, Math.max(0, now - before) / span);
      this.rates.operators = sample.operators.map((row, place) => measure(row[0], this.before.operators[place]?.[0] ?? row[0], this.rates.operators[place]));
      this.rates.queries = sample.queries.map((count, place) => measure(count, this.before.queries[place] ?? count, this.rates.queries[place]));
      const known = new Map(this.before.streams.map((row) => [row[0], row[1]]));
      for (const [name, arrived] of sample.streams) this.rates.streams.set(name, measure(arrived, known.get(name) ?? arrived, this.rates.streams.get(name)));
    }
    this.before = sample;
  }

  render() {
    this.due = false;
    this.graph.update(this.sample, this.rates);
    this.list.update(this.sample, this.rates);
    this.showTotals();
    this.showStreams();
    this.showNotices();
    const now = performance.now();
    if (now - this.chartsAt > CHART_MS && get("lines").open) { this.chartsAt = now; this.charts.draw(); }
  }

  showTotals() {
    const point = this.sample.point;
    const values = { "tuples/s": formatNumber(point?.rows_in), "results/s": formatNumber(point?.results), state: formatBytes(point?.memory ?? 0), queries: formatCount(this.structure.queries.length) };
    if (!get("totals").children.length) for (const name of Object.keys(values)) get("totals").append(element("div", {}, element("dt", {}, name), element("dd")));
    Object.values(values).forEach((value, place) => setText(get("totals").children[place].lastChild, value));
  }

  showStreams() {
    const lags = this.sample.point?.lags ?? {};
    const most = Math.max(0, ...Object.values(lags));
    const inTicks = this.sample.streams.some((row) => !row[5]);
    if (inTicks !== this.charts.inTicks) { this.charts.inTicks = inTicks; this.charts.build(); }
    for (const [name, arrived, late, dead, , inSeconds] of this.sample.streams) {
      let row = this.streamRows.get(name);
      if (!row) {
        row = element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "n" }), element("td", { class: "n" }), element("td"), ...Array.from({ length: 3 }, () => element("td", { class: "n" })));
        this.streamRows.set(name, row);
        get("streams").append(row);
      }
      const holds = lags[name] > 0 && lags[name] === most;
      const lag = lags[name] === undefined ? "–" : inSeconds ? formatDuration(lags[name]) : `${formatNumber(lags[name])} ticks`;
      const cells = [formatNumber(this.rates.streams.get(name) ?? 0), lag, holds ? "others wait for it" : "", formatNumber(arrived), formatNumber(late), formatNumber(dead)];
      cells.forEach((text, place) => setText(row.children[place + 1], text));
      row.children[3].className = holds ? "holds" : "";
    }
  }

  // What the program's notices say: streams that hold others back, late rows, units of time.
  showNotices() {
    const text = this.sample.notices.join("\n");
    if (text === this.notices) return;
    this.notices = text;
    get("notices").replaceChildren(...this.sample.notices.map((notice) => element("li", {}, notice)));
  }

  addEvents(events) {
    get("no-events").hidden = this.events.length + events.length > 0;
    for (const event of events) {
      const numbers = describeNumbers(event.numbers), isPlan = event.kind === "plan";
      const what = ["plan", "added", "dropped", "altered"].includes(event.kind) ? event.query : event.text;
      const plan = isPlan ? ` ${event.before ?? "–"} → ${event.after ?? "–"}` : event.kind === "added" && event.after ? ` with the plan ${event.after}` : "";
      get("events").prepend(element("li", {}, element("time", {}, formatTime(event.time)), " ", element("span", { class: "kind" }, event.kind), ` ${what}`, element("span", { class: "numbers" }, plan, numbers && ` (${numbers})`)));
    }
    this.events.push(...events);
    while (get("events").children.length > 300) get("events").lastChild.remove();
    this.events.splice(0, this.events.length - 300);
  }

  choose(name) {
    this.chosen = name;
    this.list.choose(name);
    get("detail").hidden = !name;
    this.drawGraph();
    if (name) this.refresh();
  }

  async refresh(added = null) {
    if (added && !this.chosen && this.places?.has(added)) this.choose(added);
    const name = this.chosen;
    if (!name || document.hidden) return;
    const found = await fetch(`/api/query?name=${encodeURIComponent(name)}`).then((got) => got.json()).catch(() => null);
    if (!found?.name || name !== this.chosen) return;
    setText(get("detail-heading"), `Query ${found.name}`);
    setText(get("detail-text"), found.text);
    setText(get("detail-plan"), found.explain);
    const moves = this.events.filter((event) => event.query === name && event.kind === "plan");
    const rows = moves.slice(-3).toReversed().map((event) => [formatTime(event.time), event.before ?? "–", event.after ?? "–"]);
    get("plans").replaceChildren(...(rows.length ? [element("h3", {}, "Plan before and after"), buildTable(["at", "before", "after"], rows)] : []));
    get("detail-results").replaceChildren(found.latest ? buildTable(found.latest.columns, found.latest.rows.toReversed()) : element("p", {}, { engine: "Waiting for the next results.", run: "None in the last micro-batches. All results are in the sink." }[this.kind] ?? "Results are in the sink."));
    const slices = found.slices?.rows.length ? [element("h3", {}, "Slices of the shared join"), buildTable(found.slices.columns, found.slices.rows)] : [];
    get("detail-slices").hidden = !slices.length;
    get("detail-slices").replaceChildren(...slices);
  }
}

window.penstockPage = new Page();
