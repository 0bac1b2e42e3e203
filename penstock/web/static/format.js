// Numbers and elements, as the page shows them.
const UNITS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

export function formatNumber(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  for (const [size, unit] of UNITS) if (Math.abs(value) >= size) return (value / size).toFixed(value / size < 10 ? 1 : 0) + unit;
  return Math.abs(value) >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(value < 0.1 ? 2 : 1);
}

export function formatBytes(value) {
  return value === null || value >= 1e3 ? `${formatNumber(value)}B` : `${formatNumber(value)} B`;
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

export function buildTable(columns, rows) {
  const head = element("tr", {}, ...columns.map((name) => element("th", {}, name)));
  const body = rows.map((row) => element("tr", {}, ...row.map((value) => element("td", {}, value))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}
