// Steer: what was edited, what it did to the error, what is locked and required, and where it is saved.

import { address } from "./address.js";
import { change, controls, edit, editable, may } from "./edits.js";
import { api, count, h, percent, plural } from "./dom.js";
import { exporting } from "./export.js";
import { barsFigure } from "./figures.js";
import { groupRows } from "./groups.js";

const PART = 60;

export async function show(facts) {
  const n = facts.n_groups;
  const [told, groups] = await Promise.all([api("steer", { n }), api("groups", { n, most: PART })]);
  return { content: [h("h1", {}, "Steer"), lead(facts), h("div", {}, state(facts, told)), list(facts, groups)] };
}

function lead(facts) {
  const text = !editable(facts) ? "The explorer was started with --read-only: the model can be seen, not edited."
    : may(facts, "split") ? "Rename, split, join and lock groups below, on their cards and pages, and move words on a group's page. Each edit is measured, saved, and can be undone."
      : "Groups of this model can be renamed, here, on their cards and pages. To change which words they have, open a model with its whole hierarchy.";
  return h("p", { class: "lead" }, text);
}

function state(facts, told) {
  return [h("div", { class: "two" }, h("div", {}, error(told), saved(facts, told)), rules(facts, told)), edits(facts, told), exported(facts, told)];
}

const shownError = (found) => (found ? `${percent(found.error)} ± ${percent(found.standard_error)}` : "–");

function error(told) {
  if (told.why_not) return h("p", { class: "quiet" }, told.why_not);
  const now = told.now;
  return h("div", {}, h("p", { class: "figure" }, h("span", { class: "quiet" }, "Error at "), plural(told.n_groups, "group"), ": ", h("strong", {}, shownError(now))),
    now ? h("p", { class: "small" }, `${now.protocol}. Errors before and after an edit are found in this way.`) : null);
}

function saved(facts, told) {
  const { path, problem, changed } = told.saved;
  const buttons = editable(facts) ? h("p", { class: "tools" },
    h("button", { type: "button", disabled: !told.n_edits, "aria-keyshortcuts": "Control+Z", title: "Ctrl+Z", onclick: () => change("undo") }, "Undo"),
    h("button", { type: "button", disabled: !told.undone.length, "aria-keyshortcuts": "Control+Shift+Z", title: told.undone.length ? `${told.undone[0]} (Ctrl+Shift+Z)` : "Ctrl+Shift+Z", onclick: () => change("redo") }, "Redo"),
    problem ? h("button", { type: "button", onclick: () => change("save") }, "Save again") : null) : null;
  const where = problem ? h("p", { class: "problem", role: "alert" }, `Not saved: ${problem}`)
    : h("p", { class: "small" }, path === null ? "This model has no file, so that edits are kept only while the explorer runs: the lines of Python below make them again."
      : told.read_only ? "" : changed ? `Saved to ${path}` : `Edits are saved to ${path}`);
  return h("div", {}, buttons, where);
}

function rules(facts, told) {
  const line = (text, act) => h("li", {}, text, " ", editable(facts) ? h("button", { type: "button", onclick: act }, "Take back") : null);
  const lines = [
    ...told.locked.map((one) => line([h("a", { href: address("/groups", { group: one.group }) }, one.name), " is locked"], () => edit(facts, { edit: "unlock", group: one.group }))),
    ...told.links.map((one) => line(`${one.names.join(" and ")} ${one.together ? "stay together" : "stay apart"}`, () => edit(facts, { edit: "unlink", words: one.words }))),
  ];
  return h("section", { class: "why" }, h("h2", {}, "Locks and rules"), lines.length ? h("ul", { class: "rules" }, lines) : h("p", { class: "quiet" }, "None. A locked group stays whole at every number of groups.", ...(may(facts, "must_link") ? [" To keep two words together or apart, find both on the page ", h("a", { href: address("/groups", {}) }, "Groups"), "."] : [])));
}

function edits(facts, told) {
  if (!told.n_edits) return h("section", {}, h("h2", {}, "Edits"), h("p", { class: "quiet" }, "None yet."));
  const when = (text) => (text ? h("time", { datetime: text }, new Date(text).toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false })) : "earlier");
  const rows = told.edits.map((one) => h("tr", {}, h("td", {}, count(one.number + 1)), h("td", {}, when(one.when)), h("td", { class: "what" }, one.text),
    h("td", {}, one.of_clusters ? clusterNumbers(one) : one.from === undefined || one.from === null ? "" : one.from === one.to ? count(one.to) : `${count(one.from)} → ${count(one.to)}`), h("td", {}, shownError(one.before)), h("td", {}, shownError(one.after))));
  const head = ["", "When", "What", "Groups", "Error before", "after"].map((name) => h("th", { scope: "col" }, name));
  const rest = told.n_edits - told.edits.length;
  return h("section", {}, h("h2", {}, plural(told.n_edits, "edit")),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Edits" }, h("table", { class: "edits" }, h("caption", { class: "unseen" }, "Edits, the last one first"), h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows))),
    rest > 0 ? h("p", { class: "small" }, `${count(rest)} earlier ones are not shown.`) : null);
}

/** How many clusters there were before an edit of them, and after. */
function clusterNumbers({ before, after }) {
  if (!after) return "";
  return `${before && before.n_clusters !== after.n_clusters ? `${count(before.n_clusters)} → ` : ""}${plural(after.n_clusters, "cluster")}`;
}

function exported(facts, told) {
  const head = ["number", "when", "what", "groups_before", "groups_after", "error_before", "error_after", "standard_error"];
  const rows = () => [head, ...told.edits.map((one) => [one.number + 1, one.when, one.text, one.from, one.to, one.before?.error, one.after?.error, one.after?.standard_error])];
  const errors = () => [...told.edits].reverse().filter((one) => one.after && !one.of_clusters).flatMap((one, k) => [...(k || !one.before ? [] : [["before", one.before]]), [`${one.number + 1}. ${one.text}`, one.after]]);
  const measured = errors().length ? errors() : told.now ? [[plural(told.n_groups, "group"), told.now]] : [];
  const figure = () => barsFigure(errors().length ? "Error after each edit" : "Error", measured.map(([name, found]) => [name, found.error, shownError(found)]));
  return exporting("steer", { lines: told.python,
    tables: [...(told.n_edits ? [["Edits", `${facts.title}-edits`, rows]] : []), ["Groups", `${facts.title}-${facts.n_groups}-groups`, () => groupRows(facts)]],
    drawings: measured.length ? [["Errors", `${facts.title}-edits`, figure]] : [] });
}

function list(facts, told) {
  const visual = facts.modality === "images" || facts.modality === "videos"; // words without names
  const row = (one) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: address("/groups", { group: one.number }) }, one.name), one.locked ? h("span", { class: "small" }, " locked") : null),
    h("td", {}, count(one.n_words)), h("td", { class: "words" }, one.has_patches ? h("img", { class: "patches", src: `/api/groups/${one.number}/patches?n=${facts.n_groups}`, alt: `Typical patches of ${one.name}`, loading: "lazy" }) : visual ? "" : one.words.slice(0, 8).map((word) => word.name).join(", ")), h("td", { class: "class" }, one.classes[0]?.name ?? ""), h("td", {}, controls(facts, one)));
  const body = h("tbody", {}, told.groups.map(row));
  const more = h("button", { type: "button", class: "more", hidden: told.groups.length >= told.total }, "Show more");
  let shown = told.groups.length;
  more.addEventListener("click", async () => {
    const next = await api("groups", { n: facts.n_groups, first: shown, most: PART });
    body.append(...next.groups.map(row));
    shown += next.groups.length;
    more.hidden = shown >= next.total;
  });
  const head = [h("th", { scope: "col" }, "Group"), h("th", { scope: "col" }, "Words"), h("td", { class: "words" }), h("th", { scope: "col", class: "class" }, "Speaks for"), h("td", {})];
  return h("section", {}, h("h2", {}, plural(told.total, "group")),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Groups" }, h("table", { class: "compact" }, h("thead", {}, h("tr", {}, head)), body)), more);
}
