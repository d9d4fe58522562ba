// Labels: items whose held-out answer contradicts their label; keys decide, and a model is fitted again with the decisions.

import { address, changed, go } from "./address.js";
import { api, count, h, percent, plural } from "./dom.js";
import { exporting } from "./export.js";
import { cell } from "./items.js";

const PART = 60;
const KEYS = { k: "keep", c: "change", x: "leave" };

export async function show(facts, parameters) {
  const title = h("h1", {}, "Labels");
  if (!facts.items?.n_labelled) return { content: [title, h("p", { class: "lead" }, facts.items ? "The items have no labels." : "No items are shown: start the explorer with an index, or with the location of items.")] };
  const given = { n: facts.n_groups, label: parameters.get("label") ?? "", sort: parameters.get("sort") ?? "" };
  const told = await api("labels", { ...given, most: PART });
  const page = new Page(facts, given, told);
  return { content: [title, lead(facts, told), filters(facts, given), page.bar, page.refit, page.list, page.more, exported(facts, given)], shown: () => page.watch(), leave: () => page.stop() };
}

function lead(facts, { total, n_fair: n }) {
  if (!n) return h("p", { class: "lead" }, "The model was learned from all of these items, and its index keeps no models that have not seen them: nothing can be said about their labels.");
  return h("p", { class: "lead" }, `${plural(total, "label")} of ${count(n)} ${total === 1 ? "is" : "are"} contradicted by models that have not seen the item; those come first whose label is least probable.`);
}

function filters(facts, given) {
  const choice = (name, label, options) => h("label", {}, `${label} `, h("select", { onchange: (event) => go(changed({ [name]: event.target.value }), true) }, options.map(([value, text]) => h("option", { value, selected: given[name] === String(value) }, text))));
  return h("form", { class: "filters", "aria-label": "Which labels", onsubmit: (event) => event.preventDefault() },
    choice("label", "Class", [["", "any"], ...facts.classes.map((name, k) => [k, name])]),
    choice("sort", "Order", [["", "least probable label"], ["margin", "least margin over the answer"]]));
}

class Page {
  constructor(facts, given, told) {
    Object.assign(this, { facts, given, total: told.total, rows: [] });
    this.bar = h("div", { class: "tools deciding" });
    this.refit = h("div", { role: "status" });
    this.list = h("ol", { class: "issues" });
    this.more = h("button", { type: "button", class: "more", onclick: () => this.load() }, "Show more");
    this.add(told.items);
    this.tell(told.state);
    this.undoing = (event) => {
      if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "u") this.change("undo", {});
    };
  }

  watch() { document.addEventListener("keydown", this.undoing); }
  stop() { this.stopped = true; document.removeEventListener("keydown", this.undoing); }

  add(items) {
    for (const row of items) {
      const one = { row, element: h("li", { tabindex: 0, class: "issue", "aria-label": `${row.id}: ${row.label}, or ${row.predicted}?` }), near: h("div", { class: "two near" }) };
      one.element.addEventListener("focusin", () => this.near(one));
      one.element.addEventListener("keydown", (event) => this.key(event, one));
      this.rows.push(one);
      this.draw(one);
      this.list.append(one.element);
    }
    this.more.hidden = this.rows.length >= this.total;
  }

  async load() {
    this.add((await api("labels", { ...this.given, first: this.rows.length, most: PART })).items);
  }

  draw(one) {
    const { row } = one;
    const button = (text, key, act, pressed) => h("button", { type: "button", "aria-keyshortcuts": key, "aria-pressed": String(pressed), disabled: this.state?.read_only, onclick: act }, text, key ? h("kbd", {}, key) : null);
    const { decided } = row;
    const others = h("select", { "aria-label": `Another class for ${row.id}`, disabled: this.state?.read_only, onchange: (event) => event.target.value !== "" && this.decide(one, event.target.value) },
      h("option", { value: "" }, "another class"), this.facts.classes.filter((name) => name !== row.label && name !== row.predicted).map((name) => h("option", { value: name, selected: decided === name }, name)));
    const said = decided === null ? null : h("p", { class: "decided" }, decided === "" ? "left out" : decided === row.label ? "kept" : `changed to ${decided}`);
    one.element.classList.toggle("done", decided !== null);
    one.element.replaceChildren(cell(row, this.facts.modality),
      h("div", {}, h("p", {}, "Label ", h("strong", {}, row.label), `, probability ${percent(row.self_confidence)}; held-out answer `, h("strong", {}, row.predicted), `, ${percent(row.self_confidence - row.margin)}. `, h("a", { href: address("/items", { item: row.number }) }, "Why")),
        h("p", { class: "tools" }, button("Keep ", "k", () => this.decide(one, row.label), decided === row.label), button(`Change to ${row.predicted} `, "c", () => this.decide(one, row.predicted), decided === row.predicted), button("Leave out ", "x", () => this.decide(one, ""), decided === ""), others, said), one.near));
  }

  key(event, one) {
    if (event.target.closest("select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.rows.indexOf(one);
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1 }[event.key];
    if (step) {
      event.preventDefault();
      this.rows[at + step]?.element.focus();
    } else if (KEYS[event.key]) {
      event.preventDefault();
      this.decide(one, { keep: one.row.label, change: one.row.predicted, leave: "" }[KEYS[event.key]]);
    }
  }

  /** Decide, and go on to the next item; the same decision again takes it back. */
  async decide(one, label) {
    const again = one.row.decided === label;
    if (!await this.change("decide", { number: one.row.number, label: again ? null : label })) return;
    one.row.decided = again ? null : label;
    this.draw(one);
    (again ? one : this.rows[this.rows.indexOf(one) + 1] ?? one).element.focus();
  }

  async change(kind, content) {
    try {
      this.tell(await api(`labels/${kind}`, {}, { method: "POST", body: JSON.stringify(content), headers: { "Content-Type": "application/json" } }));
    } catch (error) {
      this.bar.append(h("p", { class: "problem", role: "alert" }, error.message));
      return false;
    }
    if (kind === "undo") await this.again();
    return true;
  }

  /** Ask again what was decided about the items that are shown. */
  async again() {
    for (let first = 0; first < this.rows.length; first += PART) {
      const told = await api("labels", { ...this.given, first, most: PART });
      told.items.forEach((row, k) => { const one = this.rows[first + k]; if (one.row.decided !== row.decided) { one.row.decided = row.decided; this.draw(one); } });
    }
  }

  tell(state) {
    this.state = state;
    const where = state.problem ? h("span", { class: "problem" }, `Not saved: ${state.problem}`)
      : state.path ? h("span", { class: "small" }, state.n_decided ? `Saved to ${state.path}. Fit with it: bagwise fit SOURCE --relabel ${state.path}` : `Decisions are saved to ${state.path}.`) : h("span", { class: "small" }, "Decisions are kept while the explorer runs.");
    this.bar.replaceChildren(h("span", {}, `${plural(state.n_decided, "decision")}${state.n_left ? `, ${count(state.n_left)} left out` : ""} `),
      h("button", { type: "button", disabled: !state.n_undoable, "aria-keyshortcuts": "u", onclick: () => this.change("undo", {}) }, "Undo ", h("kbd", {}, "u")),
      h("button", { type: "button", disabled: !state.n_decided || state.running || state.read_only, onclick: () => this.change("refit", {}) }, "Fit again with these"), where);
    this.fitted(state);
    if (state.running && !this.stopped) setTimeout(() => this.stopped || api("labels/state").then((told) => this.tell(told), () => {}), 700);
  }

  fitted({ running, refitted }) {
    if (running) this.refit.replaceChildren(h("p", { class: "quiet" }, "A model is being fitted to the corrected labels …"));
    else if (refitted?.problem) this.refit.replaceChildren(h("p", { class: "problem" }, refitted.problem));
    else if (refitted) this.refit.replaceChildren(h("p", {}, "Fitted again: error ", h("strong", {}, `${percent(refitted.after)} ± ${percent(refitted.standard_error)}`), ` in ${refitted.protocol}; the old model has ${percent(refitted.old_answers)} for the corrected labels and ${percent(refitted.before)} for those before (${refitted.note}).`));
    else this.refit.replaceChildren();
  }

  /** Items that are most similar, of the class of the label and of that of the answer. */
  async near(one) {
    if (one.asked) return;
    one.asked = true;
    const { row, near } = one;
    try {
      const { nearest } = await api(`labels/${row.number}/nearest`, { n: this.facts.n_groups, other: row.suggested });
      near.replaceChildren(...nearest.map((rows, k) => h("div", {}, h("p", { class: "small" }, `Nearest with the label ${[row.label, row.predicted][k]}${rows.length ? "" : ": none among the 200 nearest"}`),
        h("ul", { class: "strip" }, rows.map((other) => h("li", {}, cell(other, this.facts.modality)))))));
    } catch (error) {
      near.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  }
}

function exported(facts, given) {
  const rows = async () => {
    const found = [["id", "label", "answer", "probability of the label", "margin", "decision"]];
    for (let first = 0, total = 1; first < total; first += 200) {
      const told = await api("labels", { ...given, first, most: 200 });
      total = told.total;
      found.push(...told.items.map((row) => [row.id, row.label, row.predicted, row.self_confidence, row.margin, row.decided === null ? "" : row.decided === "" ? "leave out" : row.decided]));
    }
    return found;
  };
  return exporting("labels", { tables: [["Labels", `${facts.title}-labels`, rows]] });
}
