// Search: an image that is dropped or chosen, a text, or one of the items.

import { address, changed, go } from "./address.js";
import { api, count, h, plural } from "./dom.js";
import { exporting } from "./export.js";
import { barsFigure } from "./figures.js";
import { cell } from "./items.js";
import { explanation, shownContent, sum } from "./why.js";

const METRICS = [["hellinger", "Hellinger"], ["intersection", "intersection"], ["chi2", "chi² distance"], ["euclidean", "Euclidean distance"]];
const NUMBERS = [12, 24, 48, 96];
let last = null; // the query that was sent, to be asked again in another way

export async function show(facts, parameters) {
  if (!facts.searchable) return { content: [h("h1", {}, "Search"), h("p", { class: "lead" }, "There is nothing to search: start the explorer with an index, or with the location of items.")] };
  const results = h("div", { "aria-live": "polite" });
  const given = Object.fromEntries(["by", "metric", "k"].map((name) => [name, parameters.get(name) ?? ""]));
  const how = { n: facts.n_groups, k: given.k || 24, by: given.by, metric: given.by === "groups" ? given.metric : "" };
  const like = parameters.get("like");
  let url = null;

  async function ask(body, type, picture) {
    last = { body, type, title: facts.title };
    await fill(async () => found(await api("search", how, { method: "POST", body, headers: { "Content-Type": type } }), facts, picture));
  }
  async function fill(answer) {
    results.replaceChildren(h("p", { class: "quiet" }, "Searching …"));
    try {
      results.replaceChildren(...await answer());
    } catch (error) {
      results.replaceChildren(h("p", { class: "problem", role: "alert" }, error.message));
    }
  }
  const picture = (file) => {
    if (url) URL.revokeObjectURL(url);
    url = URL.createObjectURL(file);
    return url;
  };
  const again = last?.title === facts.title && like === null ? last : null;
  const content = [h("h1", {}, "Search")];
  if (like !== null) content.push(picked(like));
  else if (facts.modality === "texts") content.push(textForm(ask, again));
  else if (facts.modality === "images") content.push(imageForm((file) => ask(file, "application/octet-stream", picture(file))));
  else content.push(h("p", {}, "Choose an item on the page ", h("a", { href: address("/items") }, "Items"), " as the query."));
  content.push(settings(facts, given), results);
  return {
    content,
    shown: () => {
      if (like !== null) fill(() => likeItem(facts, like, how, results));
      else if (again) ask(again.body, again.type, again.body instanceof Blob ? picture(again.body) : null);
    },
    leave: () => url && URL.revokeObjectURL(url),
  };
}

function picked(like) {
  return h("p", {}, "Like ", h("a", { href: address("/items", { item: like }) }, "the item that was picked"), ". ", h("a", { href: address("/search") }, "Another query"));
}

function textForm(ask, again) {
  const area = h("textarea", { rows: 5, id: "query", placeholder: "Paste a text" });
  if (typeof again?.body === "string") area.value = again.body;
  const form = h("form", { class: "query", onsubmit: (event) => { event.preventDefault(); if (area.value.trim()) ask(area.value, "text/plain;charset=utf-8", null); } },
    h("label", { for: "query" }, "Text"), area, h("button", {}, "Search"));
  area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
  return form;
}

function imageForm(take) {
  const input = h("input", { type: "file", accept: "image/*", id: "query", onchange: () => input.files[0] && take(input.files[0]) });
  const form = h("form", { class: "query drop", onsubmit: (event) => event.preventDefault() }, h("label", { for: "query" }, "Drop an image here, or choose one"), input);
  form.addEventListener("dragover", (event) => { event.preventDefault(); form.classList.add("over"); });
  form.addEventListener("dragleave", () => form.classList.remove("over"));
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("over");
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
  return form;
}

/** How items are compared: by words, classes or groups of the cut, the metric of groups, and how many are shown. */
function settings(facts, given) {
  const choice = (name, label, options) => h("label", {}, `${label} `, h("select", { onchange: (event) => go(changed({ [name]: event.target.value }), true) },
    options.map(([value, text]) => h("option", { value, selected: given[name] === String(value) }, text))));
  const by = facts.search_by ?? [];
  const both = by.includes("classes") ? "words and classes" : by.includes("words") ? "words and groups" : "as the index does";
  const ways = [["", both], ...by.map((name) => [name, { words: "all words", classes: "classes", groups: `the ${count(facts.n_groups)} groups` }[name]])];
  return h("form", { class: "filters", "aria-label": "How to compare", onsubmit: (event) => event.preventDefault() },
    choice("by", "Compare by", ways),
    given.by === "groups" ? choice("metric", "Metric", METRICS.map(([value, name], k) => [k ? value : "", name])) : null,
    choice("k", "Show", NUMBERS.map((number) => [number === 24 ? "" : number, plural(number, "item")])));
}

async function likeItem(facts, like, how, place) {
  const number = encodeURIComponent(like);
  if (how.by === "groups") { // the slider may move on, and each cut takes the server a moment
    await new Promise((done) => setTimeout(done, 250));
    if (!place.isConnected) return [];
  }
  const told = await api(`items/${number}`, { n: facts.n_groups }); // opens the source, from which hits show how they begin
  const { hits } = await api(`items/${number}/similar`, how);
  const picture = facts.modality === "images" ? `/api/items/${number}/picture?side=640` : null;
  return found({ ...told, hits, known: hits.length > 0 }, facts, picture, { like, ...how });
}

function found(told, facts, picture, given = null) {
  if (!told.known) return [h("p", { class: "problem" }, "The query has no words of the model, so there are no results.")];
  const query = [given ? h("p", {}, told.id) : null, shownContent(told, picture)];
  const parts = [
    told.why ? explanation(told, facts.classes, query, [sum(told.why, facts.classes, null)]) : h("div", {}, query),
    h("section", {}, h("h2", {}, `${count(told.hits.length)} most similar items`), h("ul", { class: "strip" }, told.hits.map((hit) => h("li", {}, cell({ ...hit, similarity: true }, facts.modality), shared(hit)))))];
  const rows = () => [["id", "label", "score", "shares most", "adds"], ...told.hits.map((hit) => [hit.id, hit.label, hit.score, hit.shared[0]?.name, hit.shared[0]?.contribution])];
  const scores = () => barsFigure(`${plural(told.hits.length, "most similar item")} and their scores`, told.hits.map((hit) => [hit.id, hit.score, hit.score.toFixed(4)]));
  const what = { tables: [["Items", `${facts.title}-similar`, rows]], drawings: [["Scores", `${facts.title}-similar`, scores]] };
  if (given) parts.push(exporting("search", { ...what, given }));
  else if (told.lines) parts.push(exporting("search", { ...what, lines: told.lines }));
  return parts;
}

/** What an item shares with the query, and how much of the score that is; of distances, what differs most. */
export function shared(hit) {
  if (!hit.shared?.length) return null;
  const rest = hit.n_shared - hit.shared.length;
  return h("dl", { class: "shared small" }, h("div", { class: "quiet" }, h("dt", {}, hit.differences ? "differs most by" : "shares"), h("dd", {}, "adds")),
    hit.shared.map((one) => h("div", {}, h("dt", { title: one.name }, one.kind === "class" ? `class ${one.name}` : one.name), h("dd", {}, one.contribution.toPrecision(2)))),
    rest > 0 ? h("div", { class: "quiet" }, h("dt", {}, `and ${count(rest)} more`), h("dd", {})) : null);
}
