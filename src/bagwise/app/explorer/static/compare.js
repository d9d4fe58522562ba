// Compare: the model beside another one, or beside itself at another number of groups.

import { address, changed, go } from "./address.js";
import { api, count, h, percent, plural } from "./dom.js";
import { exporting } from "./export.js";
import { barsFigure, matrixFigure, matrixTable } from "./figures.js";

const points = (fraction) => `${fraction > 0 ? "+" : fraction < 0 ? "−" : ""}${(100 * Math.abs(fraction)).toFixed(1)}`;

export async function show(facts, parameters) {
  const told = await api("compare", { n: facts.n_groups, m: parameters.get("m"), against: parameters.get("against") });
  const names = titles(told);
  const to = { m: told.second.n_groups, against: told.against };
  const content = [h("h1", {}, "Compare"), controls(told), h("p", { class: "lead" }, lead(told, names))];
  if (told.items) {
    const { paired } = told.items;
    if (paired) content.push(h("p", { class: "small" }, which(told, names)), four(paired, to, names));
    content.push(h("section", {}, h("h2", {}, "Answers of both"), ...answers(told, to, names)));
  } else content.push(h("p", {}, facts.items ? "There are no items that both models answer for." : "No items are shown, so that only groups are compared."));
  content.push(h("section", {}, h("h2", {}, "Groups of both"), ...groups(told, names)));
  const file = `${facts.title}-compared`;
  content.push(exporting("compare", { given: { m: told.second.n_groups, against: told.against }, tables: [
    told.items?.crossed ? ["Answers", `${file}-answers`, () => crossedRows(told.items)] : null,
    told.groups.moved && told.against !== "size" ? ["Moved words", `${file}-words`, () => [["word", "from", "from name", "to", "to name"], ...told.groups.moved.map((one) => [one.name, one.from, one.from_name, one.to, one.to_name])]] : null,
  ].filter(Boolean), drawings: [
    told.items?.crossed ? ["Answers", `${file}-answers`, () => matrixFigure([`answers with ${names[0]}`, `answers with ${names[1]}`], told.items.classes, told.items.crossed)] : null,
    told.items?.paired ? ["Errors", `${file}-errors`, () => barsFigure(`Errors on ${plural(told.items.paired.n_items, "item")}`, names.map((name, k) => [name, told.items.paired.errors[k], percent(told.items.paired.errors[k])]))] : null,
  ].filter(Boolean) }));
  return { content };
}

/** Names of both models; for one model at two sizes, their numbers of groups. */
function titles({ against, first, second }) {
  return against === "size" ? [plural(first.n_groups, "group"), plural(second.n_groups, "group")] : [first.title, against === "unedited" ? "the unedited model" : second.title];
}

function controls(told) {
  const { choices, against, second } = told;
  const named = { size: "itself at another number of groups", unedited: "itself before the edits" };
  return h("form", { class: "filters", "aria-label": "What to compare with", onsubmit: (event) => event.preventDefault() },
    choices.length > 1 ? h("label", {}, "With ", h("select", { class: "wide", onchange: (event) => go(changed({ against: event.target.value, m: "" }), true) },
      choices.map(({ name, title }) => h("option", { value: name, selected: name === against }, named[name] ?? title)))) : null,
    h("label", {}, "Its groups ", h("input", { type: "number", class: "number", min: second.least_groups, max: second.most_groups, value: second.n_groups,
      onchange: (event) => Number(event.target.value) >= 1 && go(changed({ m: Math.min(Math.max(Math.round(Number(event.target.value)), second.least_groups), second.most_groups) }), true) })));
}

function lead(told, [first, second]) {
  const paired = told.items?.paired;
  const sizes = told.against === "size" ? "" : ` (${first} at ${plural(told.first.n_groups, "group")}, ${second} at ${plural(told.second.n_groups, "group")})`;
  if (!paired) return `${first} and ${second}${sizes}.`;
  const [low, high] = paired.interval;
  const sure = low > 0 || high < 0;
  const better = paired.difference > 0 ? first : second;
  const p = paired.p_value < 0.001 ? "p < 0.001" : `p = ${paired.p_value.toFixed(3)}`;
  const says = paired.difference === 0 ? "Both are wrong equally often"
    : sure ? `Fewer errors with ${better}` : "The difference may be chance";
  return `Of ${plural(paired.n_items, "item")}, ${percent(paired.errors[0])} are wrong with ${first} and ${percent(paired.errors[1])} with ${second}${sizes}. ${says}: `
    + `the difference is ${points(paired.difference)} points, from ${points(low)} to ${points(high)} with 95\u00a0% confidence; McNemar's test gives ${p}.`;
}

/** Say what items are compared, and whose answers they are. */
function which({ items, recounted, first, second }, [one, other]) {
  const missing = items.n_first - items.n_matched;
  const parts = [];
  if (missing) parts.push(`${plural(missing, "item")} of ${one} that ${other} does not have ${missing === 1 ? "is" : "are"} left out.`);
  if (items.fair && items.n_counted < items.n_labelled) parts.push(`Items that a model was learned from are left out of the errors, unless it was not trained on them in a fold of cross-validation.`);
  if (!items.known) parts.push("It is not known which of these items a model was learned from.");
  if (!items.fair) parts.push("Both are asked about items that they were learned from, which says little about new items.");
  if (recounted && items.fair) parts.push("Both models answer themselves, not their folds of cross-validation.");
  for (const [name, side] of [[one, first], [other, second]]) {
    if (side.answered_at !== null && side.answered_at !== side.n_groups) parts.push(`Answers of ${name} are those that are stored for ${plural(side.answered_at, "group")}.`);
  }
  return parts.join(" ");
}

function four(paired, to, [first, second]) {
  const cell = (kind, text) => h("li", {}, h("a", { href: address("/items", { ...to, which: kind }) }, h("strong", {}, count(paired[kind])), ` ${text}`));
  return h("ul", { class: "four" }, cell("both_right", "right with both"), cell("first_wrong", `wrong only with ${first}`), cell("second_wrong", `wrong only with ${second}`), cell("both_wrong", "wrong with both"));
}

/** What both answer; each cell leads to its items. */
function answers({ items }, to, [first, second]) {
  const { classes, crossed, pairs, n_disagree: apart, n_matched: n } = items;
  const link = (i, j, times, ...inside) => h("a", { href: address("/items", { ...to, predicted: i, second: j }), title: `${first}: ${classes[i]}, ${second}: ${classes[j]}: ${plural(times, "item")}` }, ...inside);
  const said = h("p", {}, apart ? ["They disagree on ", h("a", { href: address("/items", { ...to, which: "disagree" }) }, `${count(apart)} of ${plural(n, "item")}`), ` (${percent(apart / n)}).`] : `They agree on all of ${plural(n, "item")}.`);
  const list = pairs.length ? h("ol", { class: "pairs" }, pairs.slice(0, 8).map(([i, j, times]) => h("li", {}, link(i, j, times, `${count(times)}: ${classes[i]} with ${first}, ${classes[j]} with ${second}`)))) : null;
  if (!crossed) return [said, list].filter(Boolean);
  const says = `Rows are answers with ${first}, columns answers with ${second}. A number leads to its items.`;
  return [said, list, ...matrixTable("Answers of both", says, classes, crossed, link)].filter(Boolean);
}

const crossedRows = ({ classes, crossed }) => [["first \\ second", ...classes], ...crossed.map((row, i) => [classes[i], ...row])];

function groups({ groups: told, first, second, against }, [one, other]) {
  if (told.problem) return [h("p", {}, told.problem)];
  const nested = against === "size"; // words stay together or apart: none moves
  const others = [told.n_only_first ? `${plural(told.n_only_first, "word")} only ${one} has` : null, told.n_only_second ? `${plural(told.n_only_second, "word")} only ${other} has` : null].filter(Boolean);
  const whole = `${told.n_same === first.n_groups ? `All ${plural(first.n_groups, "group")}` : `${count(told.n_same)} of ${plural(first.n_groups, "group")}`}${against === "size" ? "" : ` of ${one}`} lie whole in one of the ${count(second.n_groups)}${against === "size" ? "" : ` of ${other}`}.`;
  const text = `${plural(told.n_common, "word")} in common${others.length ? `; ${others.join(", ")}` : ""}. ${whole} `
    + `${nested ? "" : `${plural(told.n_moved, "word")} ${told.n_moved === 1 ? "is" : "are"} in a group other than the one that shares most with ${told.n_moved === 1 ? "its" : "their"} former one. `}Adjusted Rand index ${told.adjusted_rand.toFixed(3)} (1: the same groups, 0: as by chance).`;
  const of = (n, group, name) => h("a", { href: address("/groups", { n, group }) }, name);
  const there = (group, name) => (against === "size" ? of(second.n_groups, group, name) : name); // groups of another model have no page
  const here = (group, name) => of(first.n_groups, group, name);
  const [divided, piece] = told.divided ? [there, here] : [here, there];
  const parts = told.changed.length ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Groups that are divided" }, h("table", { class: "parts" },
    h("caption", {}, `Groups whose words lie in several groups of the other side${told.changed.length < told.n_changed ? `: the ${told.changed.length} largest of ${count(told.n_changed)}` : ""}.`),
    h("thead", {}, h("tr", {}, (told.divided ? [other, one] : [one, other]).map((name) => h("th", { scope: "col" }, `with ${name}`)))),
    h("tbody", {}, told.changed.map((group) => h("tr", {}, h("th", { scope: "row" }, divided(group.group, group.name)),
      h("td", {}, group.parts.map((part, k) => [k ? "; " : "", piece(part.group, part.name), h("span", { class: "small" }, ` ${percent(part.share, 0)}`)]), group.n_parts > group.parts.length ? h("span", { class: "small" }, ` and ${count(group.n_parts - group.parts.length)} more`) : null)))))) : null;
  const moved = !nested && told.moved.length ? h("details", {}, h("summary", {}, told.moved.length < told.n_moved ? `The ${told.moved.length} most frequent of ${count(told.n_moved)} words in another group` : `${plural(told.n_moved, "word")} in another group`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Moved words" }, h("table", { class: "parts" }, h("thead", {}, h("tr", {}, ["word", `group with ${one}`, `group with ${other}`].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, told.moved.map((word) => h("tr", {}, h("th", { scope: "row" }, word.name), h("td", {}, of(first.n_groups, word.from, word.from_name)), h("td", {}, there(word.to, word.to_name)))))))) : null;
  return [h("p", {}, text), parts, moved].filter(Boolean);
}
