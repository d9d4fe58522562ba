// Between two classes: the groups that tell one from the other, the items between them, and answers without some groups.

import { address, changed, go } from "./address.js";
import { api, classColor, count, h, percent, plural, signed, svg } from "./dom.js";
import { exporting } from "./export.js";
import { mirroredFigure } from "./figures.js";
import { cell } from "./items.js";
import { lighting } from "./lighting.js";

const NAMING = 3; // words of a group that its name has

export async function show(facts, parameters) {
  const title = h("h1", {}, "Two classes");
  if (!facts.items || facts.classes.length < 2) return { content: [title, h("p", { class: "lead" }, facts.items ? "The model has no classes." : "No items are shown: start the explorer with an index, or with the location of items.")] };
  const [first, second] = pair(facts, parameters);
  const without = (parameters.get("without") ?? "").split(",").filter(Boolean).map(Number);
  const told = await api("between", { n: facts.n_groups, first, second, without: without.join(",") });
  const light = lighting(facts, told.items.flatMap(({ rows }) => rows.map((row) => row.number)));
  const to = (parts) => go(changed({ first, second, ...parts }), true);
  const shown = told.items.filter(({ rows }) => rows.length).map(({ kind, rows }) => h("section", {}, h("h2", {}, heading(kind, told)), h("ul", { class: "strip" }, rows.map((row) => h("li", { "data-item": row.number }, cell(row, facts.modality),
    row.after === row.predicted ? null : h("p", { class: "small becomes" }, "without these groups: ", h("strong", {}, row.after)))))));
  return {
    content: [title, choices(facts, first, second), lead(facts, told, first, second), effect(told, to),
      h("div", { class: "beside" }, bars(facts, told, [first, second], light, to), h("div", { class: "sticky", tabindex: 0, role: "region", "aria-label": "Items between the classes" }, shown)), exported(facts, told, [first, second])],
    leave: light.leave,
  };
}

/** The two classes of the address, or those that are confused most. */
function pair(facts, parameters) {
  const known = ["first", "second"].map((name) => parameters.get(name));
  if (known.every((one) => one !== null)) return known.map(Number);
  let best = [0, 1, -1];
  facts.confusion?.forEach((row, i) => row.forEach((times, j) => { if (i !== j && times > best[2]) best = [i, j, times]; }));
  return best.slice(0, 2);
}

function choices(facts, first, second) {
  const choose = (name, chosen, other) => h("select", { "aria-label": `${name} class`, onchange: (event) => go(changed({ first, second, without: "", [name]: event.target.value }), true) },
    facts.classes.map((text, k) => h("option", { value: k, selected: k === chosen, disabled: k === other }, text)));
  return h("form", { class: "filters", "aria-label": "Two classes", onsubmit: (event) => event.preventDefault() }, swatch(first), choose("first", first, second), " or ", swatch(second), choose("second", second, first),
    h("button", { type: "button", onclick: () => go(changed({ first: second, second: first }), true) }, "Swap"));
}

const swatch = (k) => h("span", { class: "swatch", "aria-hidden": "true", style: { background: classColor(k) } });

function lead(facts, told, first, second) {
  const [one, other] = told.classes;
  const of = (label, predicted, k) => h("a", { href: address("/items", { label, predicted }) }, `${count(told.n_wrong[k])} of ${plural(told.n_items[k], `item`)}`);
  return h("p", { class: "lead" }, of(first, second, 0), ` of ${one} ${told.n_wrong[0] === 1 ? "is" : "are"} taken for ${other}, `, of(second, first, 1), ` of ${other} for ${one}. `,
    told.held_out ? "All of this is of models that have not seen the items." : "The model was learned from these items: this says nothing about new ones.");
}

/** What leaving out groups does to answers and to the error. */
function effect(told, to) {
  const { before, after, without, changed: by } = told;
  const shown = (one) => (one ? `${percent(one.error)} ± ${percent(one.standard_error)}` : "–");
  if (!without.length) return h("p", { class: "small", role: "status" }, `Error of all items: ${shown(before)}${before ? ` (${before.protocol})` : ""}. Untick a group to see what it would be without its words; hover over one to see them in the items below.`);
  return h("p", { role: "status" }, `Without the words of ${plural(without.length, "group")}: error ${shown(before)} → `, h("strong", {}, shown(after)),
    `; ${plural(by.n, "answer")} of all items ${by.n === 1 ? "changes" : "change"}, ${count(by.righted)} to the right class, ${count(by.wronged)} away from it. Between the two classes ${count(told.n_wrong[0] + told.n_wrong[1])} → ${count(told.n_wrong_after[0] + told.n_wrong_after[1])} wrong. `,
    h("button", { type: "button", onclick: () => to({ without: "" }) }, "All groups again"));
}

function bars(facts, told, pairOf, light, to) {
  const { rows, rest, n_rest: n, distance } = told.groups;
  const largest = Math.max(...rows.map((row) => Math.abs(row.apart)), 0);
  const visual = facts.modality === "images" || facts.modality === "videos";
  const left = new Set(told.without);
  const tick = (row) => h("input", { type: "checkbox", checked: !left.has(row.number), "aria-label": `Count ${row.name}`, onchange: (event) => {
    if (event.target.checked) left.delete(row.number); else left.add(row.number);
    to({ without: [...left].join(",") });
  } });
  const line = (row) => h("tr", { class: left.has(row.number) ? "left" : null, ...light.over(row.number) }, h("td", {}, tick(row)),
    h("th", { scope: "row" }, h("a", { href: address("/groups", { group: row.number }) }, row.name),
      row.has_patches ? h("img", { class: "patches row", src: `/api/groups/${row.number}/patches?n=${facts.n_groups}`, alt: "", loading: "lazy" }) : visual ? null : h("span", { class: "small" }, row.words.slice(NAMING).map((word) => word.name).join(", "))),
    h("td", { class: "two-sided", title: `mean in ${told.classes[0]} ${signed(row.means[0])}, in ${told.classes[1]} ${signed(row.means[1])}` }, mirrored(row, largest, pairOf)), h("td", {}, signed(row.apart)));
  return h("section", {}, h("h2", {}, `What tells ${told.classes[0]} from ${told.classes[1]}`),
    h("p", { class: "small" }, `A bar is how much further apart a group moves the scores of the two classes: what it adds to ${told.classes[0]} less ${told.classes[1]} in items of the one, less the same in items of the other. It lies on the side of the class that the group speaks for; an empty one moves them together.`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Groups" }, h("table", { class: "mirror" }, h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "Group"), h("th", { scope: "col" }, h("span", {}, `← ${told.classes[0]}`), h("span", {}, `${told.classes[1]} →`)), h("th", { scope: "col" }, "apart"))),
      h("tbody", {}, rows.map(line), n ? h("tr", {}, h("td", {}), h("th", { scope: "row" }, plural(n, "other group")), h("td", {}), h("td", {}, signed(rest))) : null,
        h("tr", { class: "total" }, h("td", {}), h("th", { scope: "row" }, "distance of the mean scores"), h("td", {}), h("td", {}, distance.toPrecision(3)))))));
}

function mirrored(row, largest, pairOf) {
  const wide = largest > 0 ? (50 * Math.abs(row.apart)) / largest : 0;
  return h("span", { class: `bar mirrored${row.apart < 0 ? " together" : ""}`, "aria-hidden": "true" },
    h("span", { style: { width: `${wide}%`, [row.side ? "left" : "right"]: "50%", "--of": classColor(pairOf[row.side]) } }));
}

function heading(kind, { classes: [one, other] }) {
  return { wrong_first: `${one} taken for ${other}`, wrong_second: `${other} taken for ${one}`, right_first: `${one}, nearest to ${other}`, right_second: `${other}, nearest to ${one}` }[kind];
}

function exported(facts, told, numbers) {
  const file = `${facts.title}-${told.classes.join("-or-")}`;
  const rows = () => [["group", "name", "speaks for", "apart", ...told.classes.map((name) => `mean in ${name}`)], ...told.groups.rows.map((row) => [row.number, row.name, told.classes[row.side], row.apart, ...row.means]), ["", "other groups", "", told.groups.rest, "", ""]];
  const items = () => [["id", "label", "predicted", "without groups"], ...told.items.flatMap(({ rows: some }) => some.map((row) => [row.id, row.label, row.predicted, row.after]))];
  return exporting("between", { tables: [["Groups", file, rows], ["Items", `${file}-items`, items]], drawings: [["Groups", file, () => mirroredFigure(told.classes, told.groups.rows, numbers)]], given: { first: numbers[0], second: numbers[1] } });
}
