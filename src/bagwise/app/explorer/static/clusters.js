// Clusters of items: names, sizes, what tells them apart, typical items and a map; edited by the same editor as groups.

import { address, changed, go } from "./address.js";
import { api, count, csv, download, h, percent, plural, say } from "./dom.js";
import { change, may } from "./edits.js";
import { exporting } from "./export.js";
import { cell } from "./items.js";
import { COLORS, loadMap } from "./map.js";
import { mapView } from "./mapview.js";
import { barsFigure } from "./figures.js";

const PART = 60;
const TERMS = 6; // of a card
const AGAIN = 800; // milliseconds until texts are asked for again
const color = (number) => COLORS[number % COLORS.length];
const swatch = (number) => h("span", { class: "swatch", style: { background: color(number) } });
const things = (facts, n) => plural(n, { images: "picture", texts: "text", videos: "video", table: "row" }[facts.modality]);

export async function show(facts, parameters) {
  const number = parameters.get("cluster");
  return number === null || !facts.clusters ? all(facts, parameters) : one(facts, parameters, number);
}

/** Show all clusters; `more` are sections of the home page of a collection without classes. */
export async function all(facts, parameters, more = []) {
  const title = h("h1", {}, "Clusters");
  if (!facts.items) return { content: [title, h("p", { class: "lead" }, "No items are shown: start the explorer with an index."), ...more] };
  const told = await api("clusters", { n: facts.n_groups });
  if (!told.clusters) return { content: [title, h("p", { class: "lead" }, "These items have no clusters yet."), maker(facts, told), ...more] };
  const drawn = await map(facts);
  const cards = h("ul", { class: "cards clusters" });
  let gone = false;
  const draw = (now) => cards.replaceChildren(...now.clusters.map((each) => card(each, facts, now)));
  draw(told);
  const again = async () => { // texts, when their source is open
    if (gone) return;
    const now = await api("clusters", { n: facts.n_groups });
    if (gone) return;
    if (now.opening) setTimeout(again, AGAIN);
    else if (!cards.querySelector("details[open]")) draw(now);
  };
  const worth = h("p", { class: "small", role: "status" });
  const file = `${facts.title}-clusters`;
  return {
    content: [title, h("p", { class: "lead" }, lead(facts, told)), h("p", { class: "small" }, suggested(told), " ", agreement(told)), worth, tools(facts), drawn.element,
      h("section", {}, h("h2", {}, plural(told.clusters.length, "cluster")), cards), labelling(facts),
      h("section", {}, h("h2", {}, "Another number of clusters"), maker(facts, told)), ...more,
      exporting("clusters", { tables: [["Clusters", file, () => rows(told)]], drawings: sizes(facts, told, file), canvases: drawn.canvases(file) })],
    shown: () => {
      drawn.draw();
      if (told.opening) setTimeout(again, AGAIN);
      api("clusters/measured").then(({ measured }) => { if (measured) worth.textContent = worthOf(measured); }, (error) => { worth.textContent = error.message; });
    },
    leave: () => { gone = true; drawn.leave(); },
  };
}

function sizes(facts, told, file) {
  const drawing = () => barsFigure(`${things(facts, told.n_items)} by cluster`, told.clusters.map((each) => [each.name, each.size, count(each.size)]));
  return [["Sizes", file, drawing]];
}

const rows = (told) => [["cluster", "name", "items", "certainty", "cohesion", "terms", "central"],
  ...told.clusters.map((each) => [each.number, each.name, each.size, each.certainty, each.cohesion, each.terms.map((term) => term.name).join(", "), each.items[0].id])];

function lead(facts, told) {
  const largest = told.clusters[0];
  const without = told.n_without ? ` ${things(facts, told.n_without)} without words of the vocabulary ${told.n_without === 1 ? "is" : "are"} in none.` : "";
  return `${things(facts, told.n_items)} in ${plural(told.clusters.length, "cluster")}, by their words alone; the largest, “${largest.name}”, has ${count(largest.size)}.${without}`;
}

/** How the number of clusters was found, with no more certainty than it has. */
function suggested({ numbers, method, clusters, n_edits: edits }) {
  const by = { kmeans: "k-means", spectral: "spectral clustering", manifold: "k-means of words learned on a manifold" }[method];
  const edited = edits ? ` ${plural(edits, "edit")} since then.` : "";
  if (!numbers) return `Found by ${by}; the number was given.${edited}`;
  const stable = numbers.stability[numbers.sizes.indexOf(numbers.suggested)].toFixed(2);
  const others = numbers.others.slice(0, 3).map((size) => `${size} (${numbers.stability[numbers.sizes.indexOf(size)].toFixed(2)})`);
  return `Found by ${by}. ${numbers.suggested} is a suggestion, the most stable number (${stable}, where 1 means that two halves of the items give the same clusters)${others.length ? `; also stable: ${others.join(", ")}` : ""}.${edited}`;
}

const agreement = ({ agreement: found }) => (found ? `Labels were not used; of ${plural(found.n_items, "item")} with labels, clusters agree with their ${found.n_classes} classes by NMI ${found.nmi.toFixed(2)}, ARI ${found.ari.toFixed(2)}.` : "");

const worthOf = (found) => `Of ${plural(found.n_clusters, "cluster")}: ${percent(found.error)} ± ${percent(found.standard_error)} of the items would be put into another one by the centres of the other items (${found.protocol}), as new items would be; cohesion ${found.cohesion.toFixed(2)}. More clusters have more cohesion.`;

function tools(facts) {
  if (!facts.steer || facts.steer.read_only) return facts.steer?.read_only ? h("p", { class: "small" }, "The explorer was started with --read-only: clusters can be seen, not edited.") : null;
  return h("p", { class: "tools" }, h("button", { type: "button", disabled: !facts.steer.n_edits, "aria-keyshortcuts": "Control+Z", title: "Ctrl+Z", onclick: () => change("undo") }, "Undo"),
    h("button", { type: "button", disabled: !facts.steer.n_undone, "aria-keyshortcuts": "Control+Shift+Z", title: "Ctrl+Shift+Z", onclick: () => change("redo") }, "Redo"),
    h("a", { class: "button", href: address("/steer") }, facts.steer.n_edits ? plural(facts.steer.n_edits, "edit") : "Edits"));
}

/** The map coloured by cluster; a lasso moves items. */
async function map(facts) {
  const nothing = { draw: () => {}, leave: () => {}, canvases: () => [] };
  const told = await api("map");
  if (!told.map) return { ...nothing, element: h("p", {}, h("a", { href: address("/map") }, "Make a map"), " of these items to see their clusters on it.") };
  const held = await loadMap(told.map);
  const of = new Int32Array(await (await fetch("/api/clusters/items")).arrayBuffer());
  const none = facts.clusters.length;
  const each = Uint16Array.from(of, (k) => (k < 0 ? none : k));
  const tip = h("div", { class: "maptip" });
  const chosen = h("div", { "aria-live": "polite" });
  let asked = 0;
  const hint = () => tip.replaceChildren(h("p", { class: "quiet" }, may(facts, "move_items") ? "Choose a point to open its item. Shift and drag: select items, to move them to another cluster." : "Choose a point to open its item."));
  const tell = async (number, byKey) => {
    const mine = ++asked;
    if (number === null) return hint();
    await new Promise((done) => setTimeout(done, 60));
    if (mine !== asked) return;
    const [row] = (await api("items", { n: facts.n_groups, first: number, most: 1 })).items;
    if (mine !== asked) return;
    tip.replaceChildren(cell(row, facts.modality));
    if (byKey) say(`${row.id}, ${row.cluster?.name ?? "in no cluster"}`);
  };
  const select = (numbers) => {
    view.setSelected(numbers?.length ? numbers : null);
    chosen.replaceChildren(...(numbers?.length ? [h("p", {}, `${plural(numbers.length, "item")} selected. `, h("button", { type: "button", onclick: () => select(null) }, "Clear")), mover(facts, () => [...numbers])] : []));
  };
  const view = mapView(held.points, `Map of ${plural(told.map.n_placed, "item")}, coloured by cluster; the table beside it has their numbers.`,
    { tell, open: (number) => go(address("/items", { item: number })), selected: select, moved: () => {} });
  view.setColors({ each, list: [...facts.clusters.map((one) => color(one.number)), "#737f8c"], shown: new Uint8Array(none + 1).fill(1), last: -1 });
  hint();
  const shown = [...facts.clusters].filter((one) => one.size).sort((a, b) => b.size - a.size);
  const legend = h("div", { class: "legend" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Legend" }, h("table", {}, h("caption", {}, "Items by cluster"), h("tbody", {},
    shown.map((one) => h("tr", {}, h("th", { scope: "row" }, h("a", { class: "named", href: address("/clusters", { cluster: one.number }), title: one.name }, swatch(one.number), h("span", { class: "name" }, one.name))), h("td", {}, count(one.size))))))),
  none > COLORS.length ? h("p", { class: "small" }, `Colours repeat after ${COLORS.length}.`) : null,
  h("p", { class: "small" }, h("a", { href: address("/map", { by: "cluster" }) }, "The whole map")));
  return {
    element: h("div", {}, h("div", { class: "maparea" }, h("div", {}, view.canvas, tip, chosen), legend),
      h("p", { class: "small", id: "map-keys" }, "Drag to move; keys: arrows move, plus and minus zoom, Home shows all, S selects all items in view, Enter opens the item nearest to the middle.")),
    draw: view.draw,
    leave: view.leave,
    canvases: (file) => [["Map", `${file}-map`, () => { view.draw(); return view.canvas; }]],
  };
}

/** Choose a cluster to move items to. */
function mover(facts, numbers, except = null) {
  if (!may(facts, "move_items")) return null;
  const to = h("select", { "aria-label": "Where to move the items" }, h("option", { value: "" }, "a new cluster"),
    facts.clusters.filter((one) => one.number !== except && one.size).map((one) => h("option", { value: one.number }, one.name)));
  const move = h("button", { type: "button", onclick: () => edit({ edit: "move_items", numbers: numbers(), to: to.value === "" ? null : Number(to.value) }) }, "Move");
  return h("div", { class: "moving" }, h("span", {}, "Move to "), to, move);
}

const edit = (content) => change("edit", { edit: content });

/** What tells a cluster apart: how frequent its terms are inside and elsewhere. */
function terms(one, of, most = null) {
  const part = (value) => (of === "columns" ? `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)} σ` : percent(value, value < 0.1 ? 1 : 0));
  const shown = most === null ? one.terms : one.terms.slice(0, most);
  if (!shown.length) return h("p", { class: "quiet" }, "Nothing is much more frequent here than elsewhere.");
  const named = (term) => (of === "groups" ? h("a", { href: address("/groups", { group: term.number, n: null }) }, term.name) : term.name);
  return h("div", { class: "scroll" }, h("table", { class: "terms" }, h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "here"), h("th", { scope: "col" }, "elsewhere"))),
    h("tbody", {}, shown.map((term) => h("tr", {}, h("th", { scope: "row", title: term.name }, named(term)), h("td", {}, part(term.inside)), h("td", {}, part(term.outside)))))));
}

/** Regions or patches of the first groups of words that tell a cluster of pictures apart. */
function pictured(one, facts) {
  return one.terms.filter((term) => term.patches).slice(0, 3).map((term) => h("figure", {}, h("img", { class: "patches", src: `/api/groups/${term.number}/patches?n=${facts.default_groups}`, alt: `Typical patches of ${term.name}`, loading: "lazy" }), h("figcaption", {}, term.name)));
}

const SAYS = {
  words: "The part of the items that have the word, here and elsewhere.",
  frequencies: "The mean relative frequency of the word, here and elsewhere.",
  groups: "The mean relative frequency of the group of words, here and elsewhere.",
  columns: "The mean, in standard deviations from that of all items, here and elsewhere.",
};

function figures(one, facts, n) {
  return h("p", { class: "small" }, `${count(one.size)} of ${things(facts, n)} (${percent(one.size / n, 0)}) · certainty ${one.certainty.toFixed(2)} · cohesion ${one.cohesion.toFixed(2)} · `, h("a", { href: address("/items", { cluster: one.number }) }, "items"));
}

function card(one, facts, told) {
  const pictures = facts.modality === "images";
  const thumb = (row) => h("a", { href: address("/items", { item: row.number }) }, h("img", { src: `/api/items/${row.number}/picture`, alt: row.id, title: row.id, loading: "lazy" }));
  const shown = pictures ? h("p", { class: "thumbs" }, one.items.map(thumb)) : h("ul", { class: "strip" }, one.items.map((row) => h("li", {}, cell({ ...row, cluster: null }, facts.modality))));
  return h("li", { class: "card" }, h("h3", {}, swatch(one.number), " ", h("a", { href: address("/clusters", { cluster: one.number }) }, one.name)), figures(one, facts, told.n_items),
    pictures ? shown : null, pictures ? null : terms(one, told.terms_of, TERMS), pictures ? null : shown, controls(facts, one));
}

/** What can be done with a cluster; built when it is opened. */
function controls(facts, one, open = false) {
  if (!may(facts, "rename_cluster")) return null;
  const place = h("div", { class: "controls" });
  const build = () => {
    if (place.childElementCount) return;
    const name = h("input", { type: "text", value: one.name, maxlength: 200, "aria-label": `Name of ${one.name}` });
    const others = facts.clusters.filter((other) => other.number !== one.number && other.size);
    const other = h("select", { "aria-label": `Cluster to join with ${one.name}` }, h("option", { value: "" }, "another cluster"), others.map((each) => h("option", { value: each.number }, each.name)));
    const button = (text, act, disabled = false) => h("button", { type: "button", disabled, onclick: act }, text);
    place.append(h("form", { onsubmit: (event) => { event.preventDefault(); edit({ edit: "rename_cluster", cluster: one.number, name: name.value }); } },
      name, h("button", {}, "Rename"), one.given ? button(`Name it “${one.made}” again`, () => edit({ edit: "rename_cluster", cluster: one.number, name: null })) : null));
    if (may(facts, "split_cluster")) place.append(h("div", {}, button("Split", () => edit({ edit: "split_cluster", cluster: one.number }), one.size < 2)));
    if (may(facts, "join_clusters") && others.length) place.append(h("div", {}, other, button("Join", () => other.value !== "" && edit({ edit: "join_clusters", clusters: [one.number, Number(other.value)] }))));
  };
  if (open) {
    build();
    return h("section", { class: "editing" }, h("h2", {}, "Edit this cluster"), place);
  }
  const whole = h("details", { class: "editing", ontoggle: () => whole.open && build() }, h("summary", { "aria-label": `Edit ${one.name}` }, "Edit"), place);
  return whole;
}

/** The labels that clusters give, for a classifier. */
function labelling(facts) {
  const least = h("input", { type: "number", class: "number", min: 0, max: 1, step: "any", value: 0, "aria-label": "Least certainty" });
  const said = h("span", { class: "small", role: "status" });
  const save = async () => {
    try {
      const told = await api("clusters/labels", { at_least: least.value });
      download(`${facts.title}-labels.csv`, csv([["filename", "label"], ...told.rows]));
      said.textContent = `${plural(told.rows.length, "label")}${told.n_left ? `; ${plural(told.n_left, "item")} left out` : ""}.`;
    } catch (error) {
      said.textContent = error.message;
    }
  };
  return h("section", {}, h("h2", {}, "Labels for a classifier"),
    h("p", {}, "Names of clusters can be the labels of their items: correct the clusters, save the labels, and learn a classifier by ", h("code", {}, `bagwise fit SOURCE --labels ${facts.title}-labels.csv`), ". Items that are less certain than that can be left out; they stay without a label."),
    h("p", { class: "tools" }, h("label", {}, "Least certainty ", least), h("button", { type: "button", onclick: save }, "Save the labels as CSV"), said));
}

/** Clusters the items anew. */
function maker(facts, told) {
  if (told.why_not) return h("p", { class: "small" }, told.why_not);
  if (!facts.steer || facts.steer.read_only) return h("p", { class: "small" }, "The explorer was started with --read-only, so that nothing can be changed.");
  const size = h("input", { type: "number", class: "number", min: 1, max: facts.items.n, placeholder: "auto", "aria-label": "Number of clusters" });
  return h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); change("cluster", { n_clusters: size.value === "" ? null : Number(size.value) }); } },
    h("label", {}, "Number ", size), h("button", {}, told.clusters ? "Cluster anew" : "Find clusters"),
    h("span", { class: "small" }, `Without a number, the most stable one is taken. ${told.clusters ? "Names and edits of the present clusters go; Undo brings them back." : "It takes seconds for 10,000 items."}`));
}

async function one(facts, parameters, number) {
  const told = await api(`clusters/${encodeURIComponent(number)}`, { n: facts.n_groups });
  const sort = parameters.get("sort") ?? "certainty";
  const page = (from) => api("items", { n: facts.n_groups, cluster: told.number, sort, first: from, most: PART });
  const first = await page(0);
  const strip = (list) => h("ul", { class: "strip" }, list.map((row) => h("li", {}, cell({ ...row, cluster: null }, facts.modality))));
  const typical = h("div", { class: "typical" });
  const drawTypical = (now) => typical.replaceChildren(h("h3", {}, "Most central"), strip([now.central]), ...(now.typical.length ? [h("h3", {}, "Typical"), strip(now.typical)] : []), h("h3", {}, "Outermost"), strip([now.outermost]));
  drawTypical(told);
  const chosen = new Set();
  const movable = may(facts, "move_items") && facts.clusters.length > 0;
  const said = h("span", { role: "status" }, "Tick items to move them.");
  const tick = (row) => h("label", { class: "tick" }, h("input", { type: "checkbox", "aria-label": `Choose ${row.id}`, onchange: (event) => {
    if (event.target.checked) chosen.add(row.number); else chosen.delete(row.number);
    said.textContent = chosen.size ? `${plural(chosen.size, "item")} chosen.` : "Tick items to move them.";
  } }), ` certainty ${row.cluster.certainty.toFixed(2)}`);
  const listed = (row) => h("li", {}, cell({ ...row, cluster: null }, facts.modality), movable ? tick(row) : h("span", { class: "small" }, `certainty ${row.cluster.certainty.toFixed(2)}`));
  const items = h("ul", { class: "strip" }, first.items.map(listed));
  const more = h("button", { type: "button", class: "more", hidden: first.items.length >= first.total }, "Show more");
  more.addEventListener("click", async () => {
    const next = await page(items.children.length);
    items.append(...next.items.map(listed));
    more.hidden = items.children.length >= next.total;
  });
  let gone = false;
  const again = async () => {
    if (gone) return;
    const now = await api(`clusters/${told.number}`, { n: facts.n_groups });
    if (gone) return;
    if (now.opening) return setTimeout(again, AGAIN);
    drawTypical(now);
    if (!chosen.size) items.replaceChildren(...(await page(0)).items.map(listed));
  };
  const order = h("label", {}, "Order ", h("select", { onchange: (event) => go(changed({ sort: event.target.value }), true) },
    [["certainty", "least certain first"], ["-certainty", "most certain first"], ["number", "as they are"]].map(([value, name]) => h("option", { value, selected: value === sort }, name))));
  const table = () => [["term", "here", "elsewhere"], ...told.terms.map((term) => [term.name, term.inside, term.outside])];
  return {
    content: [h("p", {}, h("a", { href: address(facts.classes.length ? "/clusters" : "/") }, "All clusters")), h("h1", { class: "itemname" }, swatch(told.number), " ", told.name), figures(told, facts, facts.items.n),
      controls(facts, told, true), h("div", { class: "two" }, h("section", {}, h("h2", {}, "What tells it apart"), h("p", { class: "small" }, SAYS[told.terms_of]), terms(told, told.terms_of), pictured(told, facts)), h("section", {}, h("h2", {}, "Typical items"), typical)),
      h("section", {}, h("h2", {}, plural(told.size, "item")), h("div", { class: "filters" }, order), movable ? h("div", { class: "moving" }, said, mover(facts, () => [...chosen], told.number)) : null, items, more),
      exporting("clusters", { tables: [["Terms", `${facts.title}-cluster-${told.number}`, table]] })].filter(Boolean),
    shown: () => told.opening && setTimeout(again, AGAIN),
    leave: () => { gone = true; },
  };
}

