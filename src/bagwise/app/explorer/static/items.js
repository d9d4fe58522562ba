// Items: a grid of all of them, of which only what is in view is asked for, and one item with why it got its class.

import { address, changed, go } from "./address.js";
import { api, count, h, plural } from "./dom.js";
import { chooser } from "./edits.js";
import { exporting } from "./export.js";
import { classCounts } from "./figures.js";
import { shared } from "./search.js";
import { hint, live } from "./live.js";
import { changes, explanation, heatPicture, shownContent, sumFigure } from "./why.js";

const FILTERS = ["label", "predicted", "cluster", "right", "seen", "group", "at_least", "at_most", "which", "second", "m", "against", "selection", "find", "sort"];
const PART = 60;
const WAYS = [["words", "all words"], ["classes", "scores of classes"], ["groups", "groups"]];

export async function show(facts, parameters) {
  if (!facts.items) return { content: [h("h1", {}, "Items"), h("p", { class: "lead" }, "No items are shown: start the explorer with an index, or with the location of items.")] };
  const number = parameters.get("item");
  return number === null ? list(facts, parameters) : one(facts, parameters, number);
}

async function list(facts, parameters) {
  const given = Object.fromEntries(FILTERS.map((name) => [name, parameters.get(name) ?? ""]));
  const n = facts.n_groups;
  const first = await api("items", { n, ...given, most: PART });
  const grid = new Grid(first, (from) => api("items", { n, ...given, first: from, most: PART }), facts.modality);
  return {
    content: [h("h1", {}, "Items"), filters(facts, given), h("p", { class: "small", role: "status" }, `${plural(first.total, "item")}${first.total < facts.items.n ? ` of ${count(facts.items.n)}` : ""}`),
      exporting("items", { tables: [["Items", `${facts.title}-items`, () => rows(facts, given)]], drawings: [["Classes", `${facts.title}-classes`, async () => classCounts(await rows(facts, given))]] }), grid.element],
    shown: () => grid.start(),
    leave: () => grid.stop(),
  };
}

function filters(facts, given) {
  const change = (name) => (event) => go(changed({ [name]: event.target.value }), true);
  const choice = (name, label, options) => h("label", {}, `${label} `, h("select", { onchange: change(name) }, options.map(([value, text]) => h("option", { value, selected: given[name] === String(value) }, text))));
  const classes = facts.classes.map((name, k) => [k, name]);
  return h("form", { class: "filters", role: "search", "aria-label": "Filter items", onsubmit: (event) => event.preventDefault() },
    h("label", {}, "Id contains ", h("input", { type: "search", value: given.find, onchange: change("find") })),
    classes.length ? choice("label", "Class", [["", "any"], ...classes]) : null,
    facts.clusters ? choice("cluster", "Cluster", [["", "any"], ...facts.clusters.filter((one) => one.size).map((one) => [one.number, one.name])]) : null,
    facts.clusters && facts.answered_at === null ? choice("sort", "Order", [["", "as they are"], ["certainty", "least certain cluster first"], ["-certainty", "most certain cluster first"], ["id", "id"]]) : null,
    facts.answered_at !== null ? [
      choice("predicted", "Predicted", [["", "any"], ...classes]),
      choice("right", "Answer", [["", "right or wrong"], ["right", "right"], ["wrong", "wrong"]]),
      choice("sort", "Order", [["", "as they are"], ["margin", "least certain first"], ["-margin", "most certain first"], ["score", "lowest score first"], ["id", "id"]])] : null,
    facts.seen?.n_seen && facts.seen.n_new ? choice("seen", "Items", [["", "all"], ["new", "new"], ["training", "of the training"]]) : null,
    facts.confidence ? range(facts, given) : null,
    comparing(facts, given),
    h("label", {}, "Contains group ", chooser(facts, "Contains group", { others: [["", "any"]], locked: true, chosen: given.group, onchange: change("group") }).element),
    given.selection ? h("span", {}, "selected on the map ", h("button", { type: "button", onclick: () => go(changed({ selection: "" }), true) }, "all items")) : null);
}

/** How certain the answer is: from, to. */
function range(facts, given) {
  const change = (name) => (event) => go(changed({ [name]: event.target.value }), true);
  const bound = (name, label) => h("input", { type: "number", class: "number", step: "any", min: 0, max: facts.confidence === "probability" ? 1 : null, value: given[name], "aria-label": `${label} ${facts.confidence}`, placeholder: label === "Least" ? "0" : facts.confidence === "probability" ? "1" : "any", onchange: change(name) });
  return h("span", { class: "range" }, `${facts.confidence === "probability" ? "Probability" : "Margin"} from `, bound("at_least", "Least"), " to ", bound("at_most", "Largest"));
}

const WHICH = [["", "all"], ["disagree", "they disagree"], ["agree", "they agree"], ["first_wrong", "wrong only here"], ["second_wrong", "wrong only in the other"], ["both_wrong", "wrong in both"], ["both_right", "right in both"]];

/** Filter by the answers of another model, if there is one or the page came from the comparison. */
function comparing(facts, given) {
  const asked = given.which || given.m || given.second || given.against;
  if (!facts.comparable && !asked) return null;
  return [
    h("label", {}, "Compared ", h("select", { onchange: (event) => go(changed({ which: event.target.value }), true) }, WHICH.map(([value, text]) => h("option", { value, selected: given.which === value }, text)))),
    asked ? h("button", { type: "button", onclick: () => go(changed({ which: "", second: "", m: "", against: "" }), true) }, "without comparison") : null];
}

async function rows(facts, given) {
  const found = [["id", "label", "predicted", "score", "runner_up", "margin", ...(facts.confidence === "probability" ? ["probability"] : []), ...(given.which || given.m || given.against ? ["other"] : [])]];
  for (let first = 0, total = 1; first < total; first += 200) {
    const told = await api("items", { n: facts.n_groups, ...given, first, most: 200 });
    total = told.total;
    found.push(...told.items.map((row) => [row.id, row.label, row.predicted, row.score, row.runner_up, row.margin, ...(facts.confidence === "probability" ? [row.probability] : []), ...(row.second === undefined ? [] : [row.second])]));
  }
  return found;
}

/** Cells of equal height; only those in view exist. */
class Grid {
  constructor(first, ask, modality) {
    this.total = first.total;
    this.ask = ask;
    this.modality = modality;
    this.height = { images: 228, table: 100 }[modality] ?? 172; // rows of tables have an id and an answer
    this.least = { images: 172, table: 172 }[modality] ?? 300;
    this.parts = new Map([[0, first.items]]);
    if (first.opening) this.again(0);
    this.inner = h("ul", { class: "grid" });
    this.element = h("div", { class: "gridbox" }, this.inner);
    this.update = () => { this.frame ||= requestAnimationFrame(() => this.draw()); };
  }

  start() {
    window.addEventListener("scroll", this.update, { passive: true });
    window.addEventListener("resize", this.update);
    this.draw();
  }

  stop() {
    this.stopped = true;
    window.removeEventListener("scroll", this.update);
    window.removeEventListener("resize", this.update);
  }

  draw() {
    this.frame = 0;
    const width = this.element.clientWidth;
    const columns = Math.max(Math.floor(width / this.least), 1);
    const rows = Math.ceil(this.total / columns);
    this.element.style.height = `${rows * this.height}px`;
    const top = Math.max(-this.element.getBoundingClientRect().top, 0);
    const from = Math.max(Math.floor(top / this.height) - 2, 0) * columns;
    const to = Math.min((Math.ceil((top + window.innerHeight) / this.height) + 2) * columns, this.total);
    const cells = [];
    for (let k = from; k < to; k++) {
      const part = Math.floor(k / PART);
      const held = this.parts.get(part);
      if (held === undefined) this.fetch(part);
      const row = Array.isArray(held) ? held[k - part * PART] : null;
      const style = { left: `${((k % columns) * 100) / columns}%`, top: `${Math.floor(k / columns) * this.height}px`, width: `${100 / columns}%`, height: `${this.height}px` };
      cells.push(h("li", { style, "aria-posinset": k + 1, "aria-setsize": this.total }, row ? cell(row, this.modality) : h("span", { class: "quiet" }, "…")));
    }
    const focused = this.inner.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.inner.replaceChildren(...cells);
    if (focused) this.inner.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  /** Ask for a part again when its texts can be read. */
  again(part) {
    setTimeout(() => this.stopped || this.fetch(part), 500);
  }

  async fetch(part) {
    if (!this.parts.has(part)) this.parts.set(part, "asked");
    try {
      const told = await this.ask(part * PART);
      this.parts.set(part, told.items);
      if (told.opening) this.again(part);
    } catch {
      this.parts.delete(part);
      return;
    }
    this.update();
  }
}

export function cell(row, modality) {
  const answer = row.predicted === undefined ? row.label
    : row.right === false ? [h("span", { class: "wrong" }, "wrong"), ` ${row.predicted}, not ${row.label}`]
      : row.label === null ? `predicted ${row.predicted}` : row.predicted;
  return h("a", { class: "item", href: address("/items", { item: row.number }) },
    modality === "images" ? h("img", { src: `/api/items/${row.number}/picture`, alt: "", loading: "lazy" }) : null,
    h("span", { class: "id", title: row.id }, row.id),
    row.score !== undefined && row.similarity ? h("span", { class: "small" }, row.score.toFixed(4)) : null,
    answer ? h("span", { class: "answer" }, answer) : null,
    row.cluster ? h("span", { class: "answer small", title: `cluster “${row.cluster.name}”, certainty ${row.cluster.certainty.toFixed(2)}` }, row.cluster.name) : null,
    row.second !== undefined ? h("span", { class: "answer small", title: `${row.second_title}: ${row.second}` }, `${row.second_title}: ${row.second}`) : null,
    row.excerpt ? h("span", { class: "excerpt" }, row.excerpt) : row.opening ? h("span", { class: "quiet" }, "The source is being opened …") : null,
    row.problem ? h("span", { class: "problem" }, row.problem) : null);
}

async function one(facts, parameters, number) {
  const n = facts.n_groups;
  const told = await api(`items/${encodeURIComponent(number)}`, { n, of: parameters.get("of"), than: parameters.get("than") });
  const picture = facts.modality === "images" ? `/api/items/${encodeURIComponent(number)}/picture?side=640` : null;
  const similar = h("ul", { class: "strip" });
  const by = h("select", { "aria-label": "Similar by", onchange: () => similarBy(by.value) }, WAYS.filter(([name]) => facts.search_by.includes(name)).map(([name, text]) => h("option", { value: name }, text)));
  const similarBy = (name) => api(`items/${encodeURIComponent(number)}/similar`, { n, k: 12, by: name }).then(({ hits }) => similar.replaceChildren(...hits.map((hit) => h("li", {}, cell({ ...hit, similarity: true }, facts.modality), shared(hit)))),
    (error) => similar.replaceChildren(h("li", { class: "problem" }, error.message)));
  if (facts.searchable) similarBy(by.value);
  const back = h("p", {}, h("a", { href: address("/items"), onclick: (event) => { if (history.length > 1) { event.preventDefault(); history.back(); } } }, "Back to the items"), " · ", h("a", { href: address("/map", { item: number }) }, "On the map"));
  const content = shownContent(told, picture, true);
  return {
    content: [back, h("h1", { class: "itemname" }, told.id), h("p", { class: "lead" }, answered(told, n)),
      told.problem ? h("p", { class: "problem" }, told.problem) : null,
      told.why ? explanation(told, facts.classes, content, [live(facts, told, content, number, (given) => go(changed(given), true)), changes(told), h("p", { class: "small" }, hint(facts))]) : content,
      facts.searchable ? h("section", {}, h("h2", {}, "Similar items"), h("p", { class: "tools" }, by.options.length > 1 ? h("label", {}, "by ", by) : null, h("a", { href: address("/search", { like: number }) }, "Search with this item as the query")), similar) : null,
      exporting("items", exported(facts, told, content))].filter(Boolean),
  };
}

/** The class and the answer, and which model gave it: for items that the model was learned from, often another one. */
function answered(told, n) {
  const of = told.cluster ? ` Cluster “${told.cluster.name}”, certainty ${told.cluster.certainty.toFixed(2)}.` : "";
  const label = `${told.label === null ? "Without a label." : `Class ${told.label}.`}${of}`;
  if (told.predicted === undefined) return label;
  const right = told.right === null ? "" : told.right ? ", which is right" : ", which is wrong";
  const at = told.answered_at === n ? "" : ` at ${plural(told.answered_at, "group")}`;
  if (told.held_out) return `${label} Held-out answer${at}: ${told.predicted}${right}. It is that of a model that was not trained on this item (${told.protocol}).`;
  return `${label} Answer of the final model${at}: ${told.predicted}${right}.${told.training ? " The model was learned from this item." : ""}`;
}

/** The terms of the score, the columns of a row, the heat map over an image. */
function exported(facts, told, content) {
  const file = `${facts.title}-item`;
  const tables = told.why ? [["Contributions", file, () => [["term", `adds to ${facts.classes[told.why.of]}${told.why.than === null ? "" : ` less ${facts.classes[told.why.than]}`}`], ["intercept", told.why.intercept], ...told.why.groups.map((one) => [one.name, one.contribution]), ["other groups", told.why.rest], [told.why.than === null ? "score" : "difference", told.why.of_score]]]] : [];
  if (told.columns) tables.push(["Columns", `${file}-columns`, () => [["column", "value", "adds"], ...told.columns]]);
  return { tables, drawings: told.why ? [["Contributions", file, () => sumFigure(told.why, facts.classes)]] : [], canvases: told.heat ? [["Heat map", `${file}-heat`, () => heatPicture(content)]] : [] };
}
