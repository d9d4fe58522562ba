// Search: an image that is dropped or chosen, or a text.

import { api, count, h } from "./dom.js";
import { cell } from "./items.js";
import { shownContent, sum } from "./why.js";

export async function show(facts) {
  if (!facts.searchable) return { content: [h("h1", {}, "Search"), h("p", { class: "lead" }, "There is nothing to search: start the explorer with an index, or with the location of items.")] };
  const results = h("div", { "aria-live": "polite" });
  const by = h("select", {}, [["", "as the index compares"], ["words", "words"], ["classes", "classes"]].map(([value, name]) => h("option", { value }, name)));
  const how = facts.classifiers.length ? h("label", {}, "Compare by ", by) : null;
  let url = null;

  async function ask(body, type, picture) {
    results.replaceChildren(h("p", { class: "quiet" }, "Searching …"));
    try {
      const told = await api("search", { n: facts.n_groups, k: 24, by: by.value }, { method: "POST", body, headers: { "Content-Type": type } });
      results.replaceChildren(...found(told, facts, picture));
    } catch (error) {
      results.replaceChildren(h("p", { class: "problem", role: "alert" }, error.message));
    }
  }
  let form;
  if (facts.modality === "texts") {
    const area = h("textarea", { rows: 5, id: "query", placeholder: "Paste a text" });
    form = h("form", { class: "query", onsubmit: (event) => { event.preventDefault(); if (area.value.trim()) ask(area.value, "text/plain;charset=utf-8", null); } },
      h("label", { for: "query" }, "Text"), area, how, h("button", {}, "Search"));
    area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
  } else if (facts.modality === "images") {
    const take = (file) => {
      if (!file) return;
      if (url) URL.revokeObjectURL(url);
      url = URL.createObjectURL(file);
      ask(file, "application/octet-stream", url);
    };
    const input = h("input", { type: "file", accept: "image/*", id: "query", onchange: () => take(input.files[0]) });
    form = h("form", { class: "query drop", onsubmit: (event) => event.preventDefault() }, h("label", { for: "query" }, "Drop an image here, or choose one"), input, how);
    form.addEventListener("dragover", (event) => { event.preventDefault(); form.classList.add("over"); });
    form.addEventListener("dragleave", () => form.classList.remove("over"));
    form.addEventListener("drop", (event) => { event.preventDefault(); form.classList.remove("over"); take(event.dataTransfer.files[0]); });
  } else {
    form = h("p", {}, "Choose an item on the page Items: its page shows the most similar ones.");
  }
  return { content: [h("h1", {}, "Search"), form, results], leave: () => url && URL.revokeObjectURL(url) };
}

function found(told, facts, picture) {
  if (!told.known) return [h("p", { class: "problem" }, "The query has no words of the model, so there are no results.")];
  return [
    h("div", { class: "two" }, h("div", {}, shownContent(told, picture)), told.why ? h("section", { class: "why" }, h("h2", {}, "Answer of the model"), sum(told.why, facts.classes, null)) : null),
    h("section", {}, h("h2", {}, `${count(told.hits.length)} most similar items`), h("ul", { class: "strip" }, told.hits.map((hit) => h("li", {}, cell({ ...hit, similarity: true }, facts.modality)))))];
}
