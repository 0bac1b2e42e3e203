// The list of queries: any number of them, of which only the visible rows are elements.
import { element, formatCount, formatNumber, setText } from "./format.js";

const HEIGHT = 44;

export class QueryList {
  constructor(root, count, search, select) {
    Object.assign(this, { root, count, search, select, queries: [], shown: [], rows: new Map(), chosen: null });
    this.space = element("div", { class: "space" });
    root.append(this.space);
    root.addEventListener("scroll", () => this.render());
    search.addEventListener("input", () => { this.root.scrollTop = 0; this.filter(); });
    root.addEventListener("keydown", (event) => this.move(event));
    new ResizeObserver(() => this.render()).observe(root);
  }

  show(queries) {
    this.queries = queries.map((query, place) => ({ ...query, place, found: `${query.name}\n${query.text}`.toLowerCase() }));
    this.filter();
  }

  filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.shown = this.queries.filter((query) => words.every((word) => query.found.includes(word)));
    const all = this.queries.length;
    setText(this.count, this.shown.length === all ? formatCount(all) : `${formatCount(this.shown.length)} of ${formatCount(all)}`);
    const none = document.getElementById("no-queries");
    none.hidden = this.shown.length > 0;
    setText(none, all ? "No query has these words in its name or text." : "There is no query yet. Add one, or open one in the program.");
    this.space.style.height = `${this.shown.length * HEIGHT}px`;
    this.render();
  }

  render() {
    const first = Math.max(0, Math.floor(this.root.scrollTop / HEIGHT) - 2);
    const last = Math.min(this.shown.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / HEIGHT) + 2);
    const wanted = new Set(this.shown.slice(first, last).map((query) => query.name));
    for (const [name, row] of this.rows) if (!wanted.has(name)) { row.button.remove(); this.rows.delete(name); }
    let previous = null;
    for (let index = first; index < last; index++) {
      const query = this.shown[index];
      let row = this.rows.get(query.name);
      if (!row) {
        const number = element("span", { class: "number" }), speed = element("span", { class: "rate" });
        const name = element("span", { class: "name" }, query.name);
        const what = element("span", { class: "what" });
        row = { number, speed, what, button: element("button", { type: "button", onclick: () => this.select(query.name) }, name, number, speed, what) };
        this.rows.set(query.name, row);
      }
      row.query = query;
      row.button.className = query.error ? "failed" : "";
      setText(row.what, query.error ?? query.text.replace(/\s+/g, " "));
      row.button.style.top = `${index * HEIGHT}px`;
      row.button.setAttribute("aria-pressed", String(query.name === this.chosen));
      if (row.button.parentNode !== this.space || row.button.previousSibling !== previous) this.space.insertBefore(row.button, previous ? previous.nextSibling : this.space.firstChild);
      previous = row.button;
    }
    this.update();
  }

  choose(name) {
    this.chosen = name;
    this.render();
  }

  move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const name = document.activeElement?.querySelector?.(".name")?.textContent;
    const next = this.shown[Math.min(this.shown.length - 1, Math.max(0, this.shown.findIndex((query) => query.name === name) + step))];
    if (!next) return;
    const top = this.shown.indexOf(next) * HEIGHT;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    if (top + HEIGHT > this.root.scrollTop + this.root.clientHeight) this.root.scrollTop = top + HEIGHT - this.root.clientHeight;
    this.render();
    this.rows.get(next.name)?.button.focus();
  }

  // Figures of the visible rows.
  update(sample = this.sample, rates = this.rates) {
    [this.sample, this.rates] = [sample, rates];
    if (!sample) return;
    for (const { query, number, speed } of this.rows.values()) {
      const rate = rates.queries[query.place];
      setText(number, formatNumber(sample.queries[query.place]));
      setText(speed, rate > 0 ? `${formatNumber(rate)}/s` : "");
    }
  }
}
