// Why an item gets its class: the item with what adds to the score, and the sum.

import { address } from "./address.js";
import { bar, count, h, plural, signed } from "./dom.js";
import { flattened } from "./export.js";
import { barsFigure } from "./figures.js";

/** The content of an item with weights: a text with marked words, an image with a heat map, or columns. */
export function shownContent(told, picture, editable = false) {
  if (told.text) return h("div", {}, h("p", { class: "text" }, marks(told.text)));
  if (told.columns) return columns(told.columns, editable);
  if (picture) return heatMap(told, picture);
  return null;
}

function marks(pieces) {
  return pieces.map(([text, mark, group]) => (mark ? h("mark", { class: `${mark < 0 ? "against" : "for"} s${Math.abs(mark)}`, "data-group": group ?? null }, text) : group === null || group === undefined ? text : h("span", { "data-group": group }, text)));
}

function columns(all, editable) {
  const value = (name, number) => (editable ? h("input", { type: "number", step: "any", class: "number", "data-column": name, "aria-label": `Value of ${name}`, value: String(Number(number.toPrecision(6))) }) : String(Number(number.toPrecision(6))));
  const sorted = [...all].sort((a, b) => Math.abs(b[2]) - Math.abs(a[2])).slice(0, 40);
  const largest = Math.max(...sorted.map(([, , weight]) => Math.abs(weight)), 0);
  return h("div", { class: "scroll" }, h("table", { class: "weights wide" }, h("thead", {}, h("tr", {}, ["column", "value", "", "adds"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, sorted.map(([name, number, weight, group]) => h("tr", { "data-group": group ?? null }, h("th", { scope: "row" }, name), h("td", {}, value(name, number)), h("td", {}, bar(weight, largest)), h("td", {}, signed(weight)))))));
}

function heatMap(told, picture) {
  const image = h("img", { src: picture, alt: "" });
  if (!told.heat) return h("div", { class: "heatmap" }, image);
  const [rows, columns_] = [told.heat.length, told.heat[0].length];
  const canvas = h("canvas", { width: columns_, height: rows, "aria-hidden": "true" });
  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    const channels = (name) => style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map((two) => parseInt(two, 16));
    const [good, bad] = [channels("--series-1"), channels("--series-2")];
    const sizes = told.heat.flat().map(Math.abs).sort((a, b) => a - b);
    const largest = Math.max(sizes[Math.floor(0.97 * (sizes.length - 1))], 1e-12); // a few cells may be far beyond
    const pen = canvas.getContext("2d");
    const pixels = pen.createImageData(columns_, rows);
    told.heat.flat().forEach((value, k) => {
      const [r, g, b] = value < 0 ? bad : good;
      pixels.data.set([r, g, b, Math.round(190 * Math.min(Math.abs(value) / largest, 1))], 4 * k);
    });
    pen.putImageData(pixels, 0, 0);
  };
  requestAnimationFrame(draw);
  const box = h("div", { class: "heatmap" }, image, canvas);
  const toggle = h("label", { class: "small" }, h("input", { type: "checkbox", checked: true, onchange: (event) => { canvas.hidden = !event.target.checked; } }), " show what adds to the score (green) and what lowers it (red)");
  return h("div", {}, box, toggle);
}

/** An explanation under what it explains: the content with its marks, and the terms of the score. */
export function explanation(told, classes, content, terms) {
  const held = told.held_out && !told.by_fold ? " The held-out answer is that of another model, which is not kept." : "";
  const than = told.why.than === null ? "" : `, not ${classes[told.why.than]}`;
  return h("section", {}, h("h2", {}, `Why ${told.by_fold ? "it is taken for" : "the final model says"} ${classes[told.why.of]}${than}`), h("p", { class: "small explains" }, `This explains ${told.explains}.${held}`),
    h("div", { class: "two" }, h("div", {}, content), h("div", { class: "why" }, terms)));
}

/** The sum: intercept, groups, the rest, and the score. `explain` shows it for another class, or less the score of one. */
export function sum(why, classes, explain, byFold = false, { tick = () => null, over = () => ({}), n = null } = {}) {
  const largest = Math.max(Math.abs(why.intercept), Math.abs(why.rest), ...why.groups.map((one) => Math.abs(one.contribution)));
  const patches = (one) => (one.has_patches && n !== null ? h("img", { class: "patches row", src: `/api/groups/${one.group}/patches?n=${n}`, alt: "", loading: "lazy" }) : null);
  const row = (name, value, total = false, attributes = {}) => h("tr", { class: total ? "total" : null, ...attributes }, h("th", { scope: "row" }, name), h("td", {}, total ? "" : bar(value, largest)), h("td", {}, total ? value.toPrecision(3) : signed(value)));
  return h("div", {},
    h("p", {}, `${byFold ? "A model that has not seen this item" : "The final model"} says `, h("strong", {}, why.predicted), ` with the score ${why.score.toPrecision(3)}; then ${why.runner_up} with ${why.runner_up_score.toPrecision(3)}. The answer changes when the difference of ${why.margin.toPrecision(3)} is lost.`),
    explain ? h("p", { class: "tools" }, choice("Score of ", classes, why.of, (of) => explain({ of, than: why.than ?? "none" })),
      choice("less that of ", classes, why.than, (than) => explain({ of: why.of, than }), "nothing")) : null,
    h("table", { class: "weights sum" }, h("caption", { class: "unseen" }, "What the score is the sum of"), h("tbody", {},
      row("intercept", why.intercept),
      why.groups.map((one) => row([tick(one), h("a", { href: address("/groups", { group: one.group }) }, one.name), patches(one)], one.contribution, false, over(one.group))),
      why.n_rest ? row(plural(why.n_rest, "other group"), why.rest) : null,
      row(why.than === null ? "score" : "difference", why.of_score, true))));
}

/** A class to choose, or none. */
function choice(text, classes, chosen, choose, none = null) {
  const options = classes.map((name, k) => h("option", { value: k, selected: k === chosen }, name));
  return h("label", {}, text, h("select", { onchange: (event) => choose(event.target.value) }, none ? h("option", { value: "none", selected: chosen === null }, none) : null, options));
}

/** The same sum as a drawing. */
export function sumFigure(why, classes) {
  const rows = [["intercept", why.intercept], ...why.groups.map((one) => [one.name, one.contribution]), ...(why.n_rest ? [[plural(why.n_rest, "other group"), why.rest]] : []), [why.than === null ? "score" : "difference", why.of_score]];
  return barsFigure(`Score of ${classes[why.of]}${why.than === null ? "" : ` less that of ${classes[why.than]}`}`, rows.map(([name, value]) => [name, value, signed(value)]));
}

/** What would change the answer: words to leave out, or columns to move. */
export function changes(told) {
  const parts = (told.moves ?? []).map((move) => h("li", {}, "If ", h("strong", {}, move.name), ` were ${Number(move.to.toPrecision(5))}, not ${Number(move.value.toPrecision(5))}, it would be ${move.becomes}.`));
  if (told.changes && told.columns && !parts.length) {
    parts.push(h("li", {}, "With ", told.changes.words.map((word, k) => [k ? ", " : "", h("strong", {}, word)]), told.changes.n_words > told.changes.words.length ? ` and ${plural(told.changes.n_words - told.changes.words.length, "more column")}` : "", ` at the least value, it would be ${told.changes.becomes}.`));
  } else if (told.changes && !told.columns) {
    const { becomes, words, n_words: n } = told.changes;
    const named = words.some((word) => !/^word \d+$/.test(word)); // words of images have numbers, which say nothing
    parts.push(h("li", {}, `Without ${named ? "" : `${n === 1 ? "the word that speaks" : `the ${count(n)} words that speak`} most for it, `}`, named ? words.map((word, k) => [k ? ", " : "", h("strong", {}, word)]) : null,
      named ? `${n > words.length ? ` and ${plural(n - words.length, "more word")}` : ""}, it would be ${becomes}.` : `it would be ${becomes}.`));
  }
  if (!parts.length) return told.changes === null ? h("p", { class: "small" }, "Nothing simple was found that would change the answer.") : null;
  return h("div", { class: "changes" }, h("h3", {}, "What would change the answer"), h("ul", {}, parts));
}

/** The heat map over its image, as one canvas. */
export async function heatPicture(content) {
  const image = content.querySelector("img");
  await image.decode();
  return flattened(image, ...content.querySelectorAll("canvas:not([hidden])"));
}
