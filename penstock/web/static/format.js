// Numbers and elements, as the page shows them.
const UNITS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

export function formatNumber(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  for (const [size, unit] of UNITS) if (Math.abs(value) >= size) return (value / size).toFixed(value / size < 10 ? 1 : 0) + unit;
  return Math.abs(value) >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(value < 0.1 ? 2 : 1);
}

// A number of things, in full.
export function formatCount(value) {
  return value.toLocaleString("en-US");
}

export function formatBytes(value) {
  return formatNumber(value).replace(/^([\d.]+)(\D?)$/, "$1 $2B");
}

const SPANS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

// A number of seconds in the largest unit that fits.
export function formatDuration(value) {
  if (!value) return value === 0 ? "0 s" : "–";
  const [size, unit] = SPANS.find(([least]) => Math.abs(value) >= least) ?? [0.001, "ms"];
  return `${formatNumber(value / size)} ${unit}`;
}

// The numbers of a decision, with what they are.
export function describeNumbers(numbers) {
  return Object.entries(numbers ?? {}).map(([name, value]) => `${formatNumber(value)} ${name}`).join(", ");
}

export function formatTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

// An element with properties, attributes (data-, aria-, class) and children; text is never parsed as HTML.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Numbers stand on the right of their column.
export function buildTable(columns, rows) {
  const sides = columns.map((_, place) => (rows.length && rows.every((row) => /^-?[\d.,]+$/.test(row[place])) ? { class: "n" } : {}));
  const head = element("tr", {}, ...columns.map((name, place) => element("th", sides[place], name)));
  const body = rows.map((row) => element("tr", {}, ...row.map((value, place) => element("td", sides[place], value))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}
