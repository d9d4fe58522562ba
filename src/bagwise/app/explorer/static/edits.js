// Edits of the model: controls where groups and words are shown, undo and redo, and what an edit did to the error.

import { address, go, parameters } from "./address.js";
import { api, h, percent, plural } from "./dom.js";

const MOST_NAMED = 1000; // groups that can be chosen by their names
const KEEPS = ["rename_cluster", "move_items", "split_cluster"]; // edits after which a cluster has its number still
let revision = 0; // of the model that this page shows
let allowed = false; // whether it can be edited
let size = 0; // its number of groups, also where another cut is shown
let named = null; // names of groups, of one revision and number of groups
let running = false;

/** Remember what model is shown; called with each answer about it. */
export function shows(facts) {
  revision = facts.steer?.revision ?? 0;
  allowed = editable(facts);
  size = facts.default_groups;
}

export const editable = (facts) => Boolean(facts.steer) && !facts.steer.read_only;
/** Whether the model allows a kind of edits. */
export const may = (facts, kind) => editable(facts) && facts.steer.kinds.includes(kind);

/** Errors before and after an edit, in words. */
export function effect(edit) {
  if (!edit?.after) return "";
  if (edit.of_clusters) return ofClusters(edit);
  const now = `${percent(edit.after.error)} ± ${percent(edit.after.standard_error)}`;
  return edit.before ? `Error ${percent(edit.before.error)} before, ${now} now.` : `Error ${now}.`;
}

/** What an edit did to clusters: how many items the other items would put elsewhere, and how near they are to centres. */
function ofClusters({ before, after }) {
  const pair = (name, show) => (before && show(before[name]) !== show(after[name]) ? `${show(before[name])} → ${show(after[name])}` : show(after[name]));
  const agrees = after.nmi === null ? "" : `, agreement with labels (NMI) ${pair("nmi", (value) => value.toFixed(2))}`;
  return `${pair("n_clusters", String)} clusters; items that others would put elsewhere ${pair("error", percent)}, cohesion ${pair("cohesion", (value) => value.toFixed(2))}${agrees}.`;
}

/** Send a change, show the model that it made, and say what it did. */
export async function change(kind, content = {}) {
  if (running) return null;
  running = true;
  tell("Working …");
  document.body.classList.add("busy");
  try {
    const body = JSON.stringify({ ...content, revision });
    const told = await api(`steer/${kind}`, {}, { method: "POST", body, headers: { "Content-Type": "application/json" } });
    revision = told.revision;
    named = null;
    const last = told.edits[0];
    const did = { edit: last ? `${last.text}. ${effect(last)}` : "", cluster: last ? `${last.text}. ${effect(last)}` : "", undo: `Undone: ${told.undone[0]}.`, redo: `Made again: ${last?.text}.`, save: "" }[kind];
    const recut = kind === "edit" && content.edit.n_groups !== undefined && content.edit.n_groups !== size ? ` The model has ${plural(told.n_groups, "group")} now.` : "";
    const saved = told.saved.problem ? ` Not saved: ${told.saved.problem}` : told.saved.path ? " Saved." : "";
    tell(`${did}${recut}${saved}`, told.saved.problem ? "problem" : "", kind === "edit" || kind === "cluster");
    const given = Object.fromEntries(parameters());
    if (kind !== "save" && content.edit?.edit !== "rename" && content.edit?.edit !== "lock" && content.edit?.edit !== "unlock") delete given.group;
    if (kind !== "save" && !KEEPS.includes(content.edit?.edit)) delete given.cluster; // numbers of clusters may be others now
    const ofGroups = kind !== "cluster" && (kind !== "edit" || content.edit.n_groups !== undefined);
    go(address(location.pathname, { ...given, n: ofGroups ? told.n_groups : given.n }), true);
    return told;
  } catch (error) {
    tell(error.message, "problem");
    return null;
  } finally {
    running = false;
    document.body.classList.remove("busy");
  }
}

export const edit = (facts, content) => change("edit", { edit: { edit: content.edit, n_groups: facts.n_groups, ...content } });

/** Say what happened, above the page; it stays until the next change. */
function tell(text, kind = "", undo = false) {
  const place = document.getElementById("notice");
  place.className = `notice ${kind}`;
  place.hidden = !text; // shown first, so that its new text is read aloud
  place.replaceChildren(h("p", {}, text), ...(undo ? [h("button", { type: "button", onclick: () => change("undo") }, "Undo")] : []),
    h("button", { type: "button", "aria-label": "Hide this message", onclick: () => { place.hidden = true; } }, "×"));
}

document.addEventListener("keydown", (event) => {
  if (!allowed || !(event.ctrlKey || event.metaKey) || event.altKey || event.target.closest("input:not([type=checkbox]):not([type=range]), textarea, select")) return;
  const key = event.key.toLowerCase();
  const kind = key === "z" ? (event.shiftKey ? "redo" : "undo") : key === "y" ? "redo" : null;
  if (!kind) return;
  event.preventDefault();
  change(kind);
});

async function names(facts) {
  const key = `${revision} ${facts.n_groups}`;
  if (named?.key === key) return named.list;
  const list = [];
  for (let first = 0; first < facts.n_groups; first += 200) {
    const told = await api("groups", { n: facts.n_groups, sort: "number", first, most: 200 });
    list.push(...told.groups.map(({ number, name, locked }) => ({ number, name, locked })));
  }
  named = { key, list };
  return list;
}

/** A field for a group: its name, or its number where there are very many. `value()` is the number, or "". Locked groups are left out unless `locked`. */
export function chooser(facts, label, { except = null, others = [], locked = false, chosen = "", onchange = null } = {}) {
  if (facts.n_groups > MOST_NAMED) {
    const field = h("input", { type: "number", class: "number", min: 0, max: facts.n_groups - 1, value: chosen, "aria-label": `${label}, its number`, onchange });
    return { element: field, value: () => field.value };
  }
  const field = h("select", { "aria-label": label, onchange }, others.map(([value, text]) => h("option", { value }, text)));
  names(facts).then((list) => {
    field.append(...list.filter((one) => one.number !== except && (locked || !one.locked)).map((one) => h("option", { value: one.number, selected: String(one.number) === chosen }, `${one.name} · group ${one.number}`)));
  }, (error) => Object.assign(field, { disabled: true, title: error.message }));
  return { element: field, value: () => field.value };
}

/** What can be done with a group; built when it is opened. */
export function controls(facts, one, open = false) {
  if (!editable(facts)) return null;
  const place = h("div", { class: "controls" });
  const build = () => {
    if (place.childElementCount) return;
    const name = h("input", { type: "text", value: one.name, maxlength: 200, "aria-label": `Name of group ${one.number}` });
    const other = chooser(facts, `Group to join with ${one.name}`, { except: one.number, others: [["", "another group"]] });
    const button = (text, act, disabled = false) => h("button", { type: "button", disabled, onclick: act }, text);
    place.append(
      h("form", { onsubmit: (event) => { event.preventDefault(); edit(facts, { edit: "rename", group: one.number, name: name.value }); } },
        name, h("button", {}, "Rename"), one.given ? button("Take the name back", () => edit(facts, { edit: "rename", group: one.number, name: null })) : null),
      ...(may(facts, "split") ? [h("div", {}, one.locked ? button("Unlock", () => edit(facts, { edit: "unlock", group: one.number })) : button("Lock", () => edit(facts, { edit: "lock", group: one.number })),
        button("Split", () => edit(facts, { edit: "split", group: one.number }), one.locked || one.n_words < 2))] : []),
      ...(one.locked || facts.n_groups < 2 || !may(facts, "join") ? [] : [h("div", {}, other.element, button("Join", () => other.value() !== "" && edit(facts, { edit: "join", groups: [one.number, Number(other.value())] })))]));
  };
  if (open) {
    build();
    return h("section", { class: "editing" }, h("h3", {}, "Edit this group"), place);
  }
  const whole = h("details", { class: "editing", ontoggle: () => whole.open && build() }, h("summary", { "aria-label": `Edit ${one.name}` }, "Edit"), place);
  return whole;
}

/** The words of a group, of which some can be ticked and moved. */
export function movable(facts, one, words) {
  if (!may(facts, "move") || one.locked) return { list: words(null), tools: null };
  const chosen = new Set();
  const to = chooser(facts, "Where to move the words", { except: one.number, others: [["", "a new group"]] });
  const move = h("button", { type: "button", disabled: true, onclick: () => edit(facts, { edit: "move", words: [...chosen], to: to.value() === "" ? null : Number(to.value()) }) }, "Move");
  const said = h("span", { role: "status" }, "Tick words to move them.");
  const tick = (word) => h("input", { type: "checkbox", "aria-label": `Choose ${word.name}`, onchange: (event) => {
    if (event.target.checked) chosen.add(word.word); else chosen.delete(word.word);
    move.disabled = !chosen.size;
    said.textContent = chosen.size ? `${plural(chosen.size, "word")} to ` : "Tick words to move them.";
  } });
  return { list: words(tick), tools: h("div", { class: "moving" }, said, to.element, move) };
}

/** Buttons that require or forbid that two words are together. */
export function pair(facts, first, second) {
  if (!may(facts, "must_link") || first.word === second.word) return [];
  const words = [first.word, second.word];
  const button = (text, kind) => h("button", { type: "button", onclick: () => edit(facts, { edit: kind, words }) }, text);
  return [button("Keep together", "must_link"), button("Keep apart", "cannot_link")];
}

