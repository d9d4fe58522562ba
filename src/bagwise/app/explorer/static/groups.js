// Words and groups: the hierarchy, and the groups of the current cut as cards.

import { address, changed, go } from "./address.js";
import { N_COLOURS, api, bar, classColor, count, h, percent, plural, signed } from "./dom.js";
import { controls, movable, pair } from "./edits.js";
import { exporting, flattened } from "./export.js";
import { icicle } from "./icicle.js";

let tree = null; // of one revision of the model
const PART = 60;

export async function show(facts, parameters) {
  const given = Object.fromEntries(["find", "label", "sort", "balance"].map((name) => [name, parameters.get(name) ?? ""]));
  const n = facts.n_groups;
  const chosen = parameters.get("group");
  const revision = facts.steer?.revision ?? 0;
  if (tree?.revision !== revision) tree = { ...await api("hierarchy"), revision };
  const told = chosen === null ? await api("groups", { n, ...given, most: PART }) : null;
  const one = chosen === null ? null : await api(`groups/${encodeURIComponent(chosen)}`, { n, balance: given.balance });
  const drawn = icicle(tree, n, (size, group) => go(address("/groups", { n: size, group })));
  const table = one ? ["Words", `${facts.title}-${n}-group-${one.number}`, () => (tree.of === "occurrences" ? [["word", "occurrences"], ...one.words.map((word) => [word.name, word.total])] : [["word"], ...one.words.map((word) => [word.name])])]
    : ["Groups", `${facts.title}-${n}-groups`, () => groupRows(facts, given)];
  const exports = exporting("groups", { tables: [table], canvases: [["Hierarchy", `${facts.title}-hierarchy`, () => flattened(drawn.element.querySelector("canvas"))]] });
  const content = [h("h1", {}, "Words and groups"), drawn.element, legend(facts), exports, finder(facts, drawn)];
  if (one) content.push(whole(one, facts));
  else content.push(filters(facts, given), list(facts, told, given));
  return { content: content.filter(Boolean), shown: drawn.draw, leave: drawn.leave };
}

/** The colours of classes, as everywhere. */
function legend({ classes }) {
  return classes.length && classes.length <= N_COLOURS ? h("ul", { class: "classes small", "aria-label": "Colours of classes" }, classes.map((name, k) => h("li", {}, h("span", { class: "swatch", "aria-hidden": "true", style: { background: classColor(k) } }), name))) : null;
}

function filters(facts, given) {
  const change = (name) => (event) => go(changed({ [name]: event.target.value }), true);
  return h("form", { class: "filters", role: "search", "aria-label": "Filter groups", onsubmit: (event) => event.preventDefault() },
    h("label", {}, "With the word ", h("input", { type: "search", value: given.find, onchange: change("find"), placeholder: "any" })), balance(facts, given),
    facts.classes.length ? h("label", {}, "Speaks for ", h("select", { onchange: change("label") },
      h("option", { value: "" }, "any class"), facts.classes.map((name, k) => h("option", { value: k, selected: given.label === String(k) }, name)))) : null,
    h("label", {}, "Order ", h("select", { onchange: change("sort") },
      [["decides", "what they decide"], ["size", tree.of === "occurrences" ? "how often they occur" : `number of ${tree.of}`], ...(facts.items ? [["coherence", "least coherent"], ["suspicious", "decide much, incoherent"]] : []), ...(facts.items?.n_labelled && facts.answered_at !== null ? [["cost", "error without them"]] : []), ["number", "number"]].map(([value, name]) => h("option", { value, selected: given.sort === value }, name)))));
}

/** How words of a group are ordered: by how often they occur, by what they say about classes, or between. */
function balance(facts, given) {
  if (!facts.classes.length || facts.modality === "images" || facts.modality === "videos") return null;
  return h("label", { title: "λ: the exponent of the frequency of a word; that of its lift is 1 − λ" }, "Words: what they tell ", h("input", { type: "range", min: 0, max: 1, step: 0.1, value: given.balance || 0.6, "aria-label": "Balance λ of lift and frequency", onchange: (event) => go(changed({ balance: event.target.value === "0.6" ? "" : event.target.value }), true) }), " how often");
}

/** All groups of the cut as a table. */
export async function groupRows(facts, given = {}) {
  const found = [["group", "name", "words", "share", "class", "weight"]];
  for (let first = 0, total = 1; first < total; first += 200) {
    const told = await api("groups", { n: facts.n_groups, ...given, first, most: 200 });
    total = told.total;
    found.push(...told.groups.map((one) => [one.number, one.name, one.n_words, one.share, one.classes[0]?.name, one.classes[0]?.weight]));
  }
  return found;
}

function list(facts, told, given) {
  const cards = h("ul", { class: "cards" }, told.groups.map((one) => card(one, facts)));
  const more = h("button", { type: "button", class: "more" });
  let shown = told.groups.length;
  const label = () => { more.textContent = `Show ${Math.min(PART, told.total - shown)} more of ${count(told.total - shown)}`; more.hidden = shown >= told.total; };
  more.addEventListener("click", async () => {
    const next = await api("groups", { n: facts.n_groups, ...given, first: shown, most: PART });
    cards.append(...next.groups.map((one) => card(one, facts)));
    shown += next.groups.length;
    label();
  });
  label();
  if (told.measured < 1) setTimeout(() => cards.isConnected && go(changed({}), true), 1500);
  return h("section", {}, told.measured < 1 ? h("p", { class: "quiet", role: "status" }, `The error without each group is being measured: ${percent(told.measured, 0)} …`) : null, h("h2", {}, told.total === told.n_groups ? plural(told.total, "group") : `${plural(told.total, "group")} of ${count(told.n_groups)}`), cards, more);
}

function head(one, level, modality) {
  const plain = one.name === `group${one.number}`; // without classes, words of images have no names
  return [h(level, {}, h("a", { href: address("/groups", { group: one.number }) }, plain ? `group ${one.number}` : one.name)),
    h("p", { class: "small" }, one.locked ? "locked · " : "", plain ? "" : `group ${one.number} · `, `${plural(one.n_words, modality === "table" ? "column" : "word")} · ${percent(one.share)} of all ${tree.of} · `,
      h("a", { href: address("/items", { group: one.number }) }, "items"),
      one.coherence === undefined ? "" : ` · coherence ${one.coherence.toFixed(2)}`, one.cost === undefined || one.cost === null ? "" : ` · without it ${one.cost < 0 ? "−" : "+"}${percent(Math.abs(one.cost))} errors`)];
}

function weights(one) {
  const largest = Math.max(...one.classes.map((each) => Math.abs(each.weight)), 0);
  return one.classes.length ? h("table", { class: "weights" }, h("caption", { class: "unseen" }, "What it adds to the scores of classes"), h("tbody", {}, one.classes.map((each) =>
    h("tr", {}, h("th", { scope: "row", title: each.name }, each.name), h("td", {}, bar(each.weight, largest)), h("td", {}, signed(each.weight)))))) : null;
}

/** How often a word occurs, where that is known. */
const times = (word) => (word.total === null ? null : h("span", { class: "small" }, ` ${count(Math.round(word.total))}`));

const patches = (one, n) => h("img", { class: "patches", src: `/api/groups/${one.number}/patches?n=${n}`, alt: `Typical patches of ${one.name}`, loading: "lazy" });

function card(one, facts) {
  const { n_groups: n, modality } = facts;
  const words = one.words.map((word) => word.name).join(", ");
  const rest = one.n_words - one.words.length;
  const visual = modality === "images" || modality === "videos"; // words without names
  return h("li", { class: "card" }, ...head(one, "h3", modality), one.has_patches ? patches(one, n) : null,
    visual ? null : h("p", { class: "words" }, words, rest ? h("span", { class: "small" }, ` and ${count(rest)} more`) : null), weights(one), controls(facts, one));
}

function whole(one, facts) {
  const n = facts.n_groups;
  const words = (tick) => h(tick ? "ul" : "ol", { class: `wordlist${tick ? " ticked" : ""}` }, one.words.map((word) => h("li", {}, tick ? h("label", {}, tick(word), " ", word.name) : word.name, times(word))));
  const { list: shown, tools } = movable(facts, one, words);
  return h("section", { class: "one" }, h("p", {}, h("a", { href: address("/groups", { n }) }, "All groups")), ...head(one, "h2", facts.modality), one.has_patches ? patches(one, n) : null, weights(one), controls(facts, one, true), tools, shown);
}

/** Finds words, and the level at which two join. */
function finder(facts, drawn) {
  const n = facts.n_groups;
  const found = h("ul", { class: "found" });
  const joined = h("p", { class: "small", role: "status" });
  const rules = h("div", { class: "tools" });
  const chosen = [];
  async function look(event) {
    const text = event.target.value.trim();
    if (!text) return found.replaceChildren();
    const told = await api("words", { n, find: text });
    found.replaceChildren(...told.words.slice(0, 12).map((word) => h("li", {},
      h("button", { type: "button", onclick: () => pick(word) }, word.name), " in ",
      h("a", { href: address("/groups", { group: word.group }) }, word.group_name), times(word))));
    if (!told.words.length) found.replaceChildren(h("li", {}, "No word contains this."));
  }
  async function pick(word) {
    drawn.focus(word.word);
    if (chosen.at(-1)?.word === word.word) return;
    chosen.push(word);
    if (chosen.length > 2) chosen.shift();
    if (chosen.length < 2) {
      joined.textContent = `${word.name}: choose a second word to see where they join.`;
      return;
    }
    const [first, second] = chosen;
    const told = await api("joined", { first: first.word, second: second.word });
    joined.textContent = told.n_groups === null ? `${first.name} and ${second.name} are never in one group.`
      : `${first.name} and ${second.name} are in one group at ${count(told.n_groups)} groups and fewer.`;
    rules.replaceChildren(...pair(facts, first, second));
  }
  return h("div", { class: "finder" }, h("label", {}, "Find a word ", h("input", { type: "search", oninput: look, placeholder: "part of a word" })), found, joined, rules);
}
