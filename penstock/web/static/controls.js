// Changes of queries: a dialog for each, with the error of the server at its place in the text.
import { element } from "./format.js";

const get = (id) => document.getElementById(id);
const ROWS = ["name", "text", "plan", "sink", "path", "probes"];
const FORMS = {
  add: { title: "Add query", rows: ["name", "text", "plan"], button: "Add" },
  alter: { title: "Alter", rows: ["text", "plan"], button: "Alter" },
  migrate: { title: "Migrate", rows: ["plan"], button: "Migrate" },
  budget: { title: "Budget", rows: ["probes"], button: "Set" },
  drop: { title: "Drop", rows: [], button: "Drop" },
};

export function readToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("penstock-token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("penstock-token") ?? "";
}

async function send(entry) {
  let answer;
  try {
    answer = await fetch("/api/control", {
      method: "POST", body: JSON.stringify(entry),
      headers: { "content-type": "application/json", "x-penstock-token": readToken() },
    });
  } catch {
    return { condition: "NO_CONNECTION", message: "the server does not answer; nothing was changed" };
  }
  return (await answer.json()).error ?? null;
}

export class Controls {
  constructor(page) {
    this.page = page;
    this.dialog = get("dialog");
    get("add").addEventListener("click", () => this.open("add"));
    for (const kind of ["alter", "migrate", "budget", "drop"]) get(kind).addEventListener("click", () => this.open(kind));
    get("cancel").addEventListener("click", () => this.dialog.close());
    get("form").addEventListener("submit", (event) => { event.preventDefault(); this.submit(); });
    get("text").addEventListener("input", () => this.mark(null));
    get("text").addEventListener("scroll", () => { get("marks").scrollTop = get("text").scrollTop; });
    get("sink").addEventListener("change", () => this.showPath());
    document.documentElement.classList.toggle("shows-only", !readToken());
  }

  open(kind) {
    this.kind = kind;
    this.query = kind === "add" ? null : this.page.chosen;
    const form = FORMS[kind], found = this.page.findQuery(this.query);
    const rows = kind === "add" && this.page.kind !== "engine" ? [...form.rows, "sink", "path"] : form.rows;
    for (const row of ROWS) get(`${row}-row`).hidden = !rows.includes(row);
    get("dialog-heading").textContent = this.query ? `${form.title}: ${this.query}` : form.title;
    get("submit").textContent = form.button;
    get("submit").className = kind === "drop" ? "danger" : "primary";
    get("name").value = "";
    get("text").value = found?.text ?? "";
    get("plan").value = kind === "migrate" ? found?.plan ?? "" : "";
    get("probes").value = "";
    this.mark(null);
    this.showPath();
    this.dialog.showModal();
  }

  showPath() {
    get("path-row").hidden = get("sink-row").hidden || ["memory", "console"].includes(get("sink").value);
  }

  build() {
    const text = get("text").value, plan = get("plan").value.trim() || null, probes = get("probes").value.trim();
    switch (this.kind) {
      case "add": {
        const sink = this.page.kind === "engine" ? "memory" : get("sink").value;
        return { do: "add-one", arguments: { name: get("name").value.trim(), text, plan, sink, path: get("path-row").hidden ? null : get("path").value.trim() || null } };
      }
      case "alter": return { do: "alter", arguments: { name: this.query, text, plan } };
      case "migrate": return { do: "migrate", arguments: { name: this.query, plan: get("plan").value.trim() } };
      case "budget": return { do: "budget", arguments: { probes: probes === "" ? null : isNaN(Number(probes)) ? probes : Number(probes), query: this.query } };
      default: return { do: "drop", arguments: { name: this.query } };
    }
  }

  async submit() {
    get("submit").disabled = true;
    const entry = this.build();
    const error = await send(entry);
    get("submit").disabled = false;
    this.mark(error);
    if (error) return;
    this.dialog.close();
    if (this.kind === "drop") this.page.choose(null);
    else this.page.refresh(entry.arguments.name);
  }

  // Underline the place of an error, and say it.
  mark(error) {
    const text = get("text").value, marks = get("marks");
    marks.replaceChildren();
    get("error").textContent = error ? `${error.message} [${error.condition}]` : "";
    get("text").setAttribute("aria-invalid", String(Boolean(error?.line)));
    if (!error?.line) return;
    const before = text.split("\n").slice(0, error.line - 1).join("\n").length + (error.line > 1 ? 1 : 0) + error.column - 1;
    marks.append(text.slice(0, before), element("mark", {}, text.slice(before, before + error.width) || " "), text.slice(before + error.width));
    marks.scrollTop = get("text").scrollTop;
    get("text").focus();
    const end = Math.min(text.length, before + error.width);
    get("text").setSelectionRange(end, end);  // a selection would hide the underline
  }
}
