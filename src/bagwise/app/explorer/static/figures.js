// Tables of pages as figures: matrices of classes, on the page and to export, and bars.

import { classColor, count, h, plural, signed, svg } from "./dom.js";

const LEVELS = 8; // shades of cells
const [CELL, ROW] = [30, 22]; // sides of cells and heights of bars of drawings
const [HEAD, GAP, BARS] = [30, 8, 320];
const LONGEST = 40; // letters of names in drawings
const MOST_BARS = 200;

const shade = (times, same, largest) => (same || !times ? 0 : Math.max(1, Math.round((LEVELS * times) / Math.max(largest, 1))));
const short = (name) => (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);
/** The width of the widest of some texts in a drawing. */
function widest(names) {
  const pen = h("canvas", {}).getContext("2d");
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`; // as `.chart text`
  return Math.max(...names.map((name) => pen.measureText(name).width), 1);
}
const apart = (matrix) => matrix.reduce((most, row, i) => row.reduce((found, times, j) => (i === j ? found : Math.max(found, times)), most), 0);

/** A matrix of classes as a table in a box that scrolls; `link(i, j, times, text)` makes the content of a cell, of all with `every`. */
export function matrixTable(label, says, classes, matrix, link, every = false) {
  const largest = apart(matrix);
  const table = h("table", { class: "heat" }, h("caption", { class: "unseen" }, label),
    h("thead", {}, h("tr", {}, h("td", {}), classes.map((name) => h("th", { scope: "col", title: name }, h("span", {}, name))))),
    h("tbody", {}, matrix.map((row, i) => h("tr", {}, h("th", { scope: "row", title: classes[i] }, classes[i]),
      row.map((times, j) => h("td", { class: `${i === j ? "same" : ""} l${shade(times, i === j, largest)}` }, times || (every && i !== j) ? link(i, j, times, times ? count(times) : "·") : ""))))));
  return [h("p", { class: "small" }, says), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table)];
}

/** The same as a drawing; names of what its rows and columns are. */
export function matrixFigure([down, across], classes, matrix) {
  const largest = apart(matrix);
  const names = classes.map(short);
  const wide = widest(names);
  const [left, top] = [GAP + wide + GAP, HEAD + wide + GAP];
  const side = CELL * classes.length;
  const middle = (k) => CELL * (k + 0.5);
  const cells = matrix.flatMap((row, i) => row.map((times, j) => {
    const level = shade(times, i === j, largest);
    const [x, y] = [left + CELL * j, top + CELL * i];
    return times ? [svg("rect", { x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 3, style: level ? { fill: `var(--l${level})` } : { fill: "none", stroke: "var(--muted)" } }),
      svg("text", { x: x + CELL / 2, y: y + CELL / 2 + 4, "text-anchor": "middle", style: level ? { fill: `var(--t${level})` } : { fill: "var(--ink)" } }, count(times))] : null;
  }));
  const title = `Rows: ${down}; columns: ${across}`;
  return drawing(left + side + GAP, top + side + GAP, title,
    names.map((name, k) => [svg("text", { x: left - GAP, y: top + middle(k) + 4, "text-anchor": "end" }, name),
      svg("text", { transform: `translate(${left + middle(k) + 4} ${top - GAP}) rotate(-90)` }, name)]), cells);
}

/** Bars for numbers of either sign: rows of a name, a number and its text. */
export function barsFigure(title, rows) {
  const shown = rows.slice(0, MOST_BARS);
  const numbers = shown.map(([, number]) => number);
  const [low, high] = [Math.min(...numbers, 0), Math.max(...numbers, 0)];
  const left = GAP + widest(shown.map(([name]) => short(name))) + GAP;
  const x = (number) => left + (BARS * (number - low)) / (high - low || 1);
  const rest = rows.length - shown.length;
  const right = widest(shown.map(([, , text]) => text));
  return drawing(left + BARS + GAP + right + GAP, HEAD + ROW * (shown.length + (rest ? 1 : 0)) + GAP, title,
    shown.map(([name, number, text], k) => [
      svg("text", { x: left - GAP, y: HEAD + ROW * (k + 0.7), "text-anchor": "end" }, short(name)),
      svg("rect", { x: Math.min(x(number), x(0)), y: HEAD + ROW * k + 4, width: Math.abs(x(number) - x(0)), height: ROW - 8, style: { fill: `var(--series-${number < 0 ? 2 : 1})` } }),
      svg("text", { x: left + BARS + GAP, y: HEAD + ROW * (k + 0.7) }, text)]),
    rest ? svg("text", { x: left, y: HEAD + ROW * (shown.length + 0.7) }, `and ${count(rest)} more`) : null);
}

/** Bars of groups to either side, by the class that each speaks for. */
export function mirroredFigure([one, other], rows, numbers) {
  const largest = Math.max(...rows.map((row) => Math.abs(row.apart)), 1e-12);
  const names = rows.map((row) => short(row.name));
  const left = GAP + widest(names) + GAP;
  const middle = left + BARS / 2;
  return drawing(left + BARS + GAP + 60, HEAD + ROW * (rows.length + 1) + GAP, `What tells ${one} from ${other}`,
    svg("text", { x: middle - GAP, y: HEAD + 14, "text-anchor": "end" }, `← ${short(one)}`), svg("text", { x: middle + GAP, y: HEAD + 14 }, `${short(other)} →`),
    rows.map((row, k) => {
      const [y, wide] = [HEAD + ROW * (k + 1), (BARS / 2) * Math.abs(row.apart) / largest];
      return [svg("text", { x: left - GAP, y: y + 0.7 * ROW, "text-anchor": "end" }, names[k]),
        svg("rect", { x: row.side ? middle : middle - wide, y: y + 4, width: wide, height: ROW - 8, style: { fill: row.apart < 0 ? "none" : classColor(numbers[row.side]), stroke: classColor(numbers[row.side]) } }),
        svg("text", { x: left + BARS + GAP, y: y + 0.7 * ROW }, signed(row.apart))];
    }));
}

function drawing(width, height, title, ...parts) {
  const whole = Math.max(width, GAP + widest([title]) + GAP);
  return svg("svg", { class: "chart", viewBox: `0 0 ${Math.ceil(whole)} ${Math.ceil(height)}` }, svg("text", { x: GAP, y: 18 }, title), parts);
}

/** How many items of a list have each class, by the rows of its table. */
export function classCounts([head, ...rows]) {
  const [label, predicted] = ["label", "predicted"].map((name) => head.indexOf(name));
  const counts = new Map();
  for (const row of rows) {
    const name = row[label] ?? (row[predicted] === undefined ? "no class" : `predicted ${row[predicted]}`);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return barsFigure(`${plural(rows.length, "item")} by class`, [...counts].sort((a, b) => b[1] - a[1]).map(([name, times]) => [name, times, count(times)]));
}
