// The first page: error against the number of groups, confusion matrix, facts of the model.

import { count, h, percent, plural, svg } from "./dom.js";
import { address, go } from "./address.js";
import { all as allClusters } from "./clusters.js";
import { exporting } from "./export.js";
import { matrixFigure, matrixTable } from "./figures.js";

/** Whether the home of a model is the page of clusters: without classes, where there are items. */
export const ofClusters = (facts) => !facts.classes.length && Boolean(facts.items) && (facts.clusters !== null || facts.can_cluster);

export async function show(facts, parameters) {
  if (ofClusters(facts)) return allClusters(facts, parameters, [section("Model", known(facts))]);
  const content = [h("h1", {}, "Overview"), lead(facts)];
  if (facts.path) content.push(section("Error and number of groups", curve(facts)));
  const trained = facts.seen?.n_seen ?? 0;
  const how = facts.held_out ? h("p", { class: "small" }, "Items that the model was learned from are predicted by models that were not trained on them.")
    : trained ? h("p", { class: "small" }, `The model was learned from ${count(trained)} of these items: its answers for them say nothing about new items.`) : null;
  if (facts.confusion) content.push(section("Confusion matrix", ...[how].filter(Boolean), ...confusion(facts)));
  content.push(section("Model", known(facts)), exported(facts, content));
  return { content };
}

const known = (facts) => h("dl", { class: "facts" }, facts.facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

function exported(facts, content) {
  const { title, path, confusion: matrix, classes, baselines } = facts;
  const tables = [];
  if (path) tables.push(["Curve", `${title}-errors`, () => [["groups", "error", "standard error"], ...path.sizes.map((size, k) => [size, path.errors[k], path.standard_errors[k]]), ...baselines.map((one) => [one.name, one.error, one.standard_error])]]);
  if (matrix) tables.push(["Confusion matrix", `${title}-confusion`, () => [["true \\ predicted", ...classes], ...matrix.map((row, i) => [classes[i], ...row])]]);
  const drawings = path ? [["Curve", `${title}-errors`, () => content.flatMap((one) => [...(one.querySelectorAll?.("svg.chart") ?? [])])[0]]] : [];
  if (matrix) drawings.push(["Confusion matrix", `${title}-confusion`, () => matrixFigure(["true classes", "predicted classes"], classes, matrix)]);
  return exporting("overview", { tables, drawings });
}

function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

function lead(facts) {
  const words = `${plural(facts.n_words, facts.modality === "table" ? "column" : "word")} merged into ${plural(facts.n_groups, "group")}`;
  const { path } = facts;
  const at = path ? path.sizes.indexOf(facts.n_groups) : -1;
  const error = at < 0 ? "" : `; error ${percent(path.errors[at])} in ${path.protocol}`;
  const few = shown(facts);
  const none = facts.items ? "" : " No items are shown: start the explorer with an index, or with the location of items.";
  const head = facts.answered_at === null && facts.classifiers.length && !facts.classifiers.includes(facts.n_groups)
    ? ` There is no classifier for ${facts.n_groups} groups; sizes with one: ${facts.classifiers.join(", ")}.` : "";
  const other = facts.answered_at !== null && facts.answered_at !== facts.n_groups
    ? ` Answers are stored for some numbers of groups: those for ${plural(facts.answered_at, "group")} are shown.` : "";
  return h("p", { class: "lead" }, `${words}${error}.${few}${other}${head}${none}`);
}

/** Say how many of the items that are shown are wrong, apart for those that the model was learned from. */
function shown({ items, error, seen, held_out: held }) {
  if (!items) return "";
  const where = ` ${plural(items.n, "item")} of ${items.place} ${items.n === 1 ? "is" : "are"} shown`;
  if (error === null) return `${where}.`;
  if (held && held.error !== null) {
    const others = seen && seen.n_new && seen.error_new !== null ? `; of ${count(seen.n_new)} new ones ${percent(seen.error_new)}` : "";
    if (held.n === items.n) return `${where}, the ones it was learned from: ${percent(held.error)} are wrong, predicted by models that were not trained on them.`;
    return `${where}: of ${count(held.n)} that it was learned from ${percent(held.error)} are wrong, predicted by models that were not trained on them (${held.protocol})${others}.`;
  }
  if (seen && seen.n_seen && !seen.n_new) return `${where}, the ones it was learned from: ${percent(error)} of them are wrong, which says nothing about new items.`;
  if (seen && seen.n_seen && seen.error_new !== null) return `${where}: of ${count(seen.n_new)} new ones ${percent(seen.error_new)} are wrong, of ${count(seen.n_seen)} that it was learned from ${percent(seen.error_seen ?? 0)}.`;
  return `${where}; ${percent(error)} of those with labels are wrong.`;
}

/** The curve of errors; a click or a key on a point cuts the model there. */
function curve(facts) {
  const { sizes, errors, standard_errors: spread, protocol, auto: small } = facts.path;
  const [width, height, left, right, top, bottom] = [window.innerWidth < 560 ? 380 : 720, 300, 56, 30, 16, 44];
  const [low, high] = [sizes[0], sizes[sizes.length - 1]];
  let most = Math.max(...errors.map((error, k) => error + (spread[k] ?? 0)), 0.01);
  const lines = facts.baselines.filter((one) => one.error <= 1.25 * most); // what is far worse would flatten the curve
  most = Math.max(most, ...lines.map((one) => one.error));
  const x = (size) => left + ((width - left - right) * Math.log(size / low)) / Math.max(Math.log(high / low), 1e-9);
  const y = (error) => height - bottom - ((height - top - bottom) * error) / most;
  const step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((one) => most / one <= 6) ?? 0.5;
  const parts = [];
  for (let tick = 0; tick <= most + 1e-12; tick += step) {
    parts.push(svg("line", { class: "rule", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, percent(tick, step < 0.01 ? 1 : 0)));
  }
  let last = -Infinity;
  for (const size of sizes) {
    if (x(size) - last < 44) continue;
    last = x(size);
    parts.push(svg("text", { x: x(size), y: height - bottom + 20, "text-anchor": "middle" }, count(size)));
  }
  parts.push(svg("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, "groups"));
  const upper = sizes.map((size, k) => `${x(size)},${y(errors[k] + (spread[k] ?? 0))}`);
  const lower = sizes.map((size, k) => `${x(size)},${y(errors[k] - (spread[k] ?? 0))}`).reverse();
  parts.push(svg("polygon", { class: "band", points: [...upper, ...lower].join(" ") }));
  parts.push(svg("polyline", { class: "curve", points: sizes.map((size, k) => `${x(size)},${y(errors[k])}`).join(" ") }));
  for (const one of lines) {
    parts.push(svg("line", { class: "baseline", x1: left, x2: width - right, y1: y(one.error), y2: y(one.error) }, svg("title", {}, `${one.name}: error ${percent(one.error)}`)));
  }
  if (facts.n_groups >= low && facts.n_groups <= high) {
    parts.push(svg("line", { class: "mark", x1: x(facts.n_groups), x2: x(facts.n_groups), y1: top, y2: height - bottom }));
  }
  sizes.forEach((size, k) => {
    const said = `${count(size)} groups: error ${percent(errors[k])} ± ${percent(spread[k] ?? 0)}${size === small ? ", smallest that is about as good as the best" : ""}`;
    const choose = () => go(address("/", { n: size }), true);
    parts.push(svg("g", { class: `knot${size === facts.n_groups ? " chosen" : ""}`, role: "button", tabindex: 0, "aria-label": said,
      onclick: choose, onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), choose()) },
    svg("title", {}, said), svg("circle", { class: "reach", cx: x(size), cy: y(errors[k]), r: 14 }),
    svg("circle", { cx: x(size), cy: y(errors[k]), r: size === facts.n_groups ? 6 : 4 })));
  });
  const texts = lines.map((one) => ({ text: `${one.name}: ${percent(one.error)}`, at: y(one.error) }));
  for (const one of labels(texts, sizes.map((size, k) => [x(size), y(errors[k])]), [left + 6, width - right - 6], height - bottom)) {
    parts.push(svg("text", { class: "haloed", x: one.x, y: one.y, "text-anchor": one.anchor }, one.text));
  }
  const simple = facts.baselines.map((one) => `${one.name} ${percent(one.error)}${one.standard_error ? ` ± ${percent(one.standard_error)}` : ""}`).join("; ");
  const at = sizes.indexOf(facts.n_groups);
  const here = at < 0 ? `Errors are known at ${sizes.map(count).join(", ")} groups, not at ${count(facts.n_groups)}.`
    : `${count(facts.n_groups)} groups: ${percent(errors[at])} ± ${percent(spread[at] ?? 0)}.`;
  return h("figure", {}, h("div", { class: "scroll" }, svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Error against number of groups, ${protocol}` }, parts)),
    h("figcaption", {}, `Error in ${protocol}, in which each fold finds groups without the items that it tests, with one standard error. ${here} `, small ? `The smallest number that is about as good as the best is ${count(small)}.` : "", simple ? ` Simple methods on the same folds${lines.length ? " (dashed)" : ""}: ${simple}.` : "", " A point leads to its number of groups."));
}

/** Places of the labels of lines: above or below them, at either end, where they cover least of the curve and of each other. */
function labels(texts, knots, [left, right], lowest) {
  const curve = knots.slice(1).flatMap(([x, y], k) => Array.from({ length: 20 }, (_, i) => [knots[k][0] + ((x - knots[k][0]) * i) / 20, knots[k][1] + ((y - knots[k][1]) * i) / 20]));
  const placed = [];
  for (const { text, at } of texts) {
    const wide = 6.6 * text.length;
    const cost = ({ from, y }) => (y + 4 > lowest ? 1000 : 0) + curve.filter(([x, high]) => x > from - 3 && x < from + wide + 3 && high > y - 14 && high < y + 5).length
      + 100 * placed.filter((one) => Math.abs(one.y - y) < 14 && one.from < from + wide && from < one.from + one.wide).length + 5 * texts.filter((one) => one.at > y - 12 && one.at < y + 4).length;
    const places = [at - 6, at + 15].flatMap((y) => [{ from: left, x: left, y, anchor: "start" }, { from: right - wide, x: right, y, anchor: "end" }]);
    placed.push({ ...places.reduce((best, one) => (cost(one) < cost(best) ? one : best)), wide, text });
  }
  return placed;
}

/** Each cell leads to its items. */
function confusion(facts) {
  const { classes, confusion: matrix } = facts;
  const pairs = matrix.flatMap((row, i) => row.map((times, j) => ({ i, j, times }))).filter(({ i, j, times }) => i !== j && times)
    .sort((a, b) => b.times - a.times).slice(0, 8);
  const link = (i, j, times, ...inside) => h("a", { href: i === j ? address("/items", { label: i, predicted: j }) : address("/between", { first: i, second: j }), title: `${classes[i]}, predicted ${classes[j]}: ${plural(times, "item")}` }, ...inside);
  const list = h("ol", { class: "pairs" }, pairs.map(({ i, j, times }) => h("li", {},
    link(i, j, times, `${count(times)} of ${classes[i]} predicted as ${classes[j]}`))));
  if (classes.length > 60) return [list];
  return [pairs.length ? list : h("p", {}, "Every labelled item is classified rightly."),
    ...matrixTable("Confusion matrix", "Rows are true classes, columns predicted classes. A number leads to what tells the two classes apart, or to the items of one class.", classes, matrix, link, true)];
}
