// Elements, numbers and requests. Text is only ever set as text, never as markup.

/** Make an element: h("p", {class: "small", onclick: f}, "text", child, …). */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const percent = (fraction, digits = 1) => `${(100 * fraction).toFixed(digits)} %`;
export const count = (number) => number.toLocaleString("en");
export const signed = (number) => `${number < 0 ? "−" : "+"}${Math.abs(number).toPrecision(3)}`;
export const plural = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;

export const N_COLOURS = 20; // of classes, as in `bagwise.display.svg`
/** The colour of a class, the same on all pages. */
export const classColor = (k) => `var(--series-${(k % N_COLOURS) + 1})`;
/** The same as it is now, for a canvas. */
export const classHex = (k) => getComputedStyle(document.documentElement).getPropertyValue(`--series-${(k % N_COLOURS) + 1}`).trim();

/** A request to the server; errors have the sentence of the library. */
export async function api(path, parameters = {}, options = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const response = await fetch(`/api/${path}?${query}`, options).catch(() => { throw new Error("The explorer does not answer. Is bagwise explore still running?"); });
  const text = await response.text();
  let content;
  try {
    content = JSON.parse(text);
  } catch { // a refusal is a sentence
    throw new Error(response.status < 500 && text ? text : `The explorer failed (${response.status}). What it printed says more.`);
  }
  if (!response.ok) throw new Error(content.error);
  return content;
}

/** Say something to screen readers. */
export function say(text) {
  document.getElementById("status").textContent = text;
}

/** A horizontal bar for a signed number, scaled to the largest. */
export function bar(value, largest) {
  const part = largest > 0 ? Math.min(Math.abs(value) / largest, 1) : 0;
  return h("span", { class: `bar ${value < 0 ? "against" : "for"}`, "aria-hidden": "true" },
    h("span", { style: { width: `${50 * part}%` } }));
}

/** Save text as a file. */
export function download(name, content, type = "text/csv") {
  const link = h("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Cells that a program for tables would take for a formula, as the library has it; numbers may have a sign.
const FORMULA = /^'*(?:[=@\t\r\n\uff1d\uff20\uff0b\uff0d]|[+-](?!(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$))/;

/** Rows as CSV; cells that a program for tables would take for a formula are quoted by an apostrophe. */
export function csv(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    const safe = typeof value === "string" && FORMULA.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
