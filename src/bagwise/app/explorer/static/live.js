// Why, live: rows of the sum and places in the item light each other up; groups, words and values can be changed.

import { api, h } from "./dom.js";
import { paint } from "./lighting.js";
import { sum } from "./why.js";

/** The sum of an item, which moves with what is changed. `content` is the item as it is shown, `choose` changes the class. */
export function live(facts, told, content, number, choose) {
  const edits = { groups: new Set(), words: new Map(), added: "", values: {} };
  const box = h("div", {});
  const said = h("p", { role: "status" });
  const reset = h("button", { type: "button", hidden: true, onclick: () => { Object.assign(edits, { groups: new Set(), words: new Map(), added: "", values: {} }); field.value = ""; for (const input of content?.querySelectorAll("input[data-column]") ?? []) input.value = input.defaultValue; ask(); } }, "As it is");
  const field = h("input", { type: "text", placeholder: "words to add", "aria-label": "Words to add" });
  const adding = facts.modality === "texts" ? h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); edits.added = field.value; ask(); } }, field, h("button", {}, "Add")) : null;
  let turn = 0;

  const { of, than } = told.why;
  async function ask() {
    const mine = ++turn;
    const nothing = !edits.groups.size && !edits.words.size && !edits.added && !Object.keys(edits.values).length;
    try {
      const body = JSON.stringify({ groups: [...edits.groups], words: [...edits.words.keys()], added: edits.added, values: edits.values });
      const { why } = nothing ? told : await api(`items/${number}/what-if`, { n: facts.n_groups, of, than: than ?? "none" }, { method: "POST", body, headers: { "Content-Type": "application/json" } });
      if (mine === turn) draw(why, nothing);
    } catch (error) {
      if (mine === turn) said.textContent = error.message;
    }
  }

  function draw(why, nothing) {
    const kind = than === null ? "score" : "difference";
    said.replaceChildren(...(nothing ? [] : [`${kind} ${told.why.of_score.toPrecision(3)} → `, h("strong", {}, why.of_score.toPrecision(3)), why.predicted === told.why.predicted ? `; the answer is still ${why.predicted}. ` : "; the answer would be ", ...(why.predicted === told.why.predicted ? [] : [h("strong", {}, why.predicted), ". "])]));
    reset.hidden = nothing;
    const shown = new Set(why.groups.map((one) => one.group));
    const gone = told.why.groups.filter((one) => edits.groups.has(one.group) && !shown.has(one.group)).map((one) => ({ ...one, contribution: 0 }));
    const tick = (one) => h("input", { type: "checkbox", checked: !edits.groups.has(one.group), "aria-label": `Count ${one.name}`, onchange: (event) => { if (event.target.checked) edits.groups.delete(one.group); else edits.groups.add(one.group); ask(); } });
    const focused = box.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    box.replaceChildren(sum({ ...why, groups: [...why.groups, ...gone] }, facts.classes, choose, told.by_fold, { tick, over, n: facts.n_groups }), ...words(why));
    if (focused) box.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  /** The words that add most; each can be taken out. */
  function words(why) {
    if (facts.modality !== "texts") return [];
    const chip = (one, out) => h("button", { type: "button", "aria-pressed": String(out), "aria-label": `${out ? "Put back" : "Take out"} ${one.name}`, onclick: () => { if (out) edits.words.delete(one.word); else edits.words.set(one.word, one); ask(); } }, out ? h("s", {}, one.name) : one.name);
    return [h("p", { class: "chips" }, h("span", { class: "small" }, "Without a word: "), [...edits.words.values()].map((one) => chip(one, true)), why.words.filter((one) => !edits.words.has(one.word)).map((one) => chip(one, false)))];
  }

  // Rows and places

  const rowsOf = (groups) => { for (const row of box.querySelectorAll("tr[data-group]")) row.classList.toggle("lit-row", groups.has(Number(row.dataset.group))); };
  const over = (group) => ({ "data-group": group, onpointerenter: () => on(group), onpointerleave: off, onfocusin: () => on(group), onfocusout: off });
  function on(group) {
    off();
    for (const one of content?.querySelectorAll(`[data-group="${group}"]`) ?? []) one.classList.add("in-group");
    const map = content?.querySelector(".heatmap");
    if (!map || !told.heats?.[group]) return;
    const canvas = h("canvas", { class: "lit", width: told.heats[group][0].length, height: told.heats[group].length, "aria-hidden": "true" });
    paint(canvas, told.heats[group]);
    map.append(canvas);
    map.classList.add("masked");
  }
  function off() {
    for (const one of content?.querySelectorAll(".in-group") ?? []) one.classList.remove("in-group");
    content?.querySelector("canvas.lit")?.remove();
    content?.querySelector(".masked")?.classList.remove("masked");
  }
  content?.addEventListener("pointerover", (event) => { const one = event.target.closest?.("[data-group]"); rowsOf(new Set(one ? [Number(one.dataset.group)] : [])); });
  content?.addEventListener("pointerleave", () => rowsOf(new Set()));
  content?.addEventListener("pointermove", (event) => {
    if (!told.heats || !event.target.closest(".heatmap")) return;
    const area = content.querySelector(".heatmap img").getBoundingClientRect();
    const at = Object.entries(told.heats).map(([group, heat]) => [Number(group), heat[Math.min(Math.max(Math.floor(((event.clientY - area.top) / area.height) * heat.length), 0), heat.length - 1)]?.[Math.min(Math.max(Math.floor(((event.clientX - area.left) / area.width) * heat[0].length), 0), heat[0].length - 1)] ?? 0]);
    const most = Math.max(...at.map(([, value]) => value));
    rowsOf(new Set(at.filter(([, value]) => value > 0.5 * most).map(([group]) => group)));
  });
  content?.addEventListener("change", (event) => {
    const input = event.target.closest("input[data-column]");
    if (!input) return;
    if (input.value === input.defaultValue || input.value === "") delete edits.values[input.dataset.column];
    else edits.values[input.dataset.column] = Number(input.value);
    ask();
  });

  draw(told.why, true);
  return h("div", {}, box, adding, said, reset);
}

/** What can be done here, in words. */
export const hint = (facts) => `Hover over a row to see its ${{ texts: "words", images: "regions", table: "columns" }[facts.modality] ?? "words"}; untick it to leave it out${{ texts: ", or take out and add words", table: ", or change a value" }[facts.modality] ?? ""}: the model is asked again.`;
