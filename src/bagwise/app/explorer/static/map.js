// The map: items in two dimensions, coloured by class, answer or cluster; selections are listed and saved.

import { address, changed, go } from "./address.js";
import { api, classColor, classHex, count, csv, download, h, percent, plural, say } from "./dom.js";
import { exporting } from "./export.js";
import { cell } from "./items.js";
import { makePoints, mapView } from "./mapview.js";

// As far apart as twelve colours can be, each with a contrast of 3 : 1 and more to light and to dark pages.
export const COLORS = ["#3579d6", "#d4621e", "#2c9457", "#c4428f", "#7d6ae0", "#94790f", "#14909f", "#d8415a", "#97683f", "#6a8f16", "#b25bd0", "#737f8c"];
const [GREY, RED] = ["#737f8c", "#d8415a"];
const PART = 24;
const METHODS = { spectral: "spectral embedding", tsne: "t-SNE" };
let held = { version: null }; // points of the last map, asked for once
let hidden = { by: null, of: new Set() }; // what the legend hides

export async function show(facts, parameters) {
  const title = h("h1", {}, "Map");
  if (!facts.items) return { content: [title, h("p", { class: "lead" }, "No items are shown: start the explorer with an index, or with the location of items.")] };
  const told = await api("map");
  if (!told.map) return { content: [title, maker(told)] };
  await loadMap(told.map);
  const clusters = told.map.named ? new Int32Array(await binary("clusters/items")) : held.clusters;
  const by = colouring(facts, told.map, clusters, parameters.get("by"));
  const predicted = by.needs ? new Int32Array(await binary("map/answers", { n: facts.n_groups })) : null;
  return page(facts, told, by, predicted, parameters, title, await selectedBefore(parameters.get("selection")));
}

/** The items of a selection that the address names, or why they are not known. */
async function selectedBefore(selection) {
  if (!selection) return {};
  try {
    return { numbers: new Int32Array(await binary("map/selected", { selection })) };
  } catch (error) {
    return { problem: error.message };
  }
}

async function binary(path, parameters = {}) {
  const response = await fetch(`/api/${path}?${new URLSearchParams(parameters)}`);
  if (!response.ok) throw new Error((await response.json()).error);
  return response.arrayBuffer();
}

/** The points of a map, asked for once. */
export async function loadMap(map) {
  if (held.version !== map.version) held = await load(map);
  return held;
}

async function load(map) {
  const content = await binary("map/points");
  const [xy, labels, clusters] = [new Float32Array(content, 0, 2 * map.n), new Int32Array(content, 8 * map.n, map.n), new Int16Array(content, 12 * map.n, map.n)];
  return { version: map.version, labels, clusters, points: makePoints(xy, clusters.map((k) => k >= 0)) };
}

/** What colours stand for: a category for each item, and a name and a colour for each category. */
function colouring(facts, map, clusters, wanted) {
  const classes = facts.classes.map((name, k) => ({ name, color: classColor(k), hex: () => classHex(k) }));
  const none = { name: "no class", color: GREY };
  const answers = facts.answered_at !== null;
  const options = [
    facts.items.n_labelled && { by: "class", name: "class", list: [...classes, none], of: () => held.labels },
    answers && { by: "predicted", name: "predicted class", needs: true, list: [...classes, none], of: (predicted) => predicted },
    answers && facts.items.n_labelled && { by: "error", name: "right or wrong", needs: true, list: [{ name: "right", color: COLORS[0] }, { name: "wrong", color: RED }, none], last: 1,
      of: (predicted) => predicted.map((answer, k) => (held.labels[k] < 0 ? -1 : Number(answer !== held.labels[k]))) },
    { by: "cluster", name: "cluster", of: () => clusters,
      list: [...map.clusters.map((one, k) => ({ name: one.name, color: COLORS[k % COLORS.length], more: one.class === null ? "" : `${percent(one.share, 0)} ${one.class}` })), none] },
  ].filter(Boolean);
  return { ...(options.find((option) => option.by === wanted) ?? options[0]), options };
}

function page(facts, told, by, predicted, parameters, title, before) {
  const { points } = held;
  const none = by.list.length - 1;
  const of = Uint16Array.from(by.of(predicted), (k) => (k < 0 ? none : k));
  const counts = new Uint32Array(by.list.length);
  for (const k of points.order) counts[of[k]]++;
  if (hidden.by !== by.by) hidden = { by: by.by, of: new Set() };
  const tip = h("div", { class: "maptip" }, h("p", { class: "quiet" }, hint()));
  const list = h("section", { class: "selection", "aria-live": "polite" });
  let chosen = null;
  let asked = 0; // only the last of several is told
  let gone = false; // to another address, which must not be amended
  for (const event of ["navigate", "popstate"]) window.addEventListener(event, () => { gone = true; }, { once: true });
  const amend = (given) => gone || history.replaceState(null, "", changed(given));

  const paint = () => view.setColors({ each: of, list: by.list.map((one) => one.hex?.() ?? one.color), shown: Uint8Array.from(by.list, (_, k) => Number(!hidden.of.has(k))), last: by.last ?? -1 });
  const label = `Map of ${plural(told.map.n_placed, "item")}, coloured by ${by.name}; the table below has their numbers.`;
  const view = mapView(points, label, {
    tell,
    open: (number) => go(address("/items", { item: number })),
    selected: select,
    moved: ({ x, y, zoom }) => amend({ x: x.toPrecision(6), y: y.toPrecision(6), zoom: zoom.toPrecision(5), item: "" }),
  });
  paint();
  window.addEventListener("themechange", paint);
  const [x, y, zoom] = ["x", "y", "zoom"].map((name) => Number(parameters.get(name) ?? NaN));
  if ([x, y, zoom].every(Number.isFinite) && zoom > 0) view.setView({ x, y, zoom });
  const item = Number(parameters.get("item") ?? NaN);
  const known = Number.isInteger(item) && item >= 0 && item < told.map.n;
  if (known && held.clusters[item] >= 0) {
    view.mark(item, 6);
    tell(item, true);
  } else if (known) tip.replaceChildren(h("p", {}, "This item has no words of the vocabulary, so it is not on the map."));

  async function tell(number, byKey) {
    const mine = ++asked;
    if (number === null) return tip.replaceChildren(h("p", { class: "quiet" }, hint()));
    await new Promise((done) => setTimeout(done, 60)); // the pointer may move on
    if (mine !== asked) return;
    try {
      const [row] = (await api("items", { n: facts.n_groups, first: number, most: 1 })).items;
      if (mine !== asked) return;
      tip.replaceChildren(cell(row, facts.modality));
      if (byKey) say(`${row.id}${row.label === null ? "" : `, ${row.label}`}`);
    } catch (error) {
      tip.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  }

  async function select(numbers) {
    const mine = (chosen = numbers);
    view.setSelected(numbers);
    if (!numbers?.length) note(""); // the address names the selection, so that it is there when one comes back
    if (numbers === null) return list.replaceChildren();
    if (!numbers.length) {
      view.setSelected(null);
      return list.replaceChildren(h("p", { role: "status" }, "No item is in the selection."));
    }
    const { selection } = await api("map/select", {}, { method: "POST", body: numbers });
    const first = await api("items", { n: facts.n_groups, selection, most: PART });
    if (mine !== chosen) return;
    note(selection);
    const rows = (part) => part.items.map((row) => h("li", {}, cell(row, facts.modality)));
    const cells = h("ul", { class: "strip" }, rows(first));
    const again = async () => { // texts, when their source is open
      const part = await api("items", { n: facts.n_groups, selection, most: cells.children.length });
      if (mine !== chosen || !cells.isConnected) return;
      cells.replaceChildren(...rows(part));
      if (part.opening) setTimeout(again, 1000);
    };
    if (first.opening) setTimeout(again, 1000);
    const more = h("button", { type: "button", class: "more" });
    const name = () => { more.textContent = `Show ${Math.min(PART, numbers.length - cells.children.length)} more of ${count(numbers.length - cells.children.length)}`; more.hidden = cells.children.length >= numbers.length; };
    more.addEventListener("click", async () => {
      const next = await api("items", { n: facts.n_groups, selection, first: cells.children.length, most: PART });
      cells.append(...rows(next));
      name();
    });
    name();
    list.replaceChildren(h("h2", {}, `${plural(numbers.length, "item")} selected`), composed(numbers),
      h("p", { class: "tools" }, h("button", { type: "button", onclick: () => save(numbers) }, "Save as CSV"),
        h("a", { class: "button", href: address("/items", { selection }) }, "Open in Items"),
        h("button", { type: "button", onclick: () => select(null) }, "Clear")), cells, more);
  }

  const note = (selection) => amend({ selection });

  /** How many of the selected items are of each category. */
  function composed(numbers) {
    const inside = new Uint32Array(by.list.length);
    for (const k of numbers) inside[of[k]]++;
    const order = [...inside.keys()].filter((k) => inside[k]).sort((a, b) => inside[b] - inside[a]);
    const rest = order.slice(8).reduce((sum, k) => sum + inside[k], 0);
    return h("p", {}, order.slice(0, 8).map((k, place) => `${place ? ", " : ""}${by.list[k].name} ${count(inside[k])}`).join("") + (rest ? `, others ${count(rest)}` : ""));
  }

  async function save(numbers) {
    download(`${facts.title}-selection.csv`, csv(await table(numbers)));
  }
  async function table(numbers) {
    const { rows } = await api("map/rows", { n: facts.n_groups }, { method: "POST", body: numbers });
    return [["id", "label", "predicted", "x", "y"], ...rows.map((row, k) => [...row, points.xy[2 * numbers[k]], points.xy[2 * numbers[k] + 1]])];
  }
  const exports = exporting("map", { tables: [["Map", `${facts.title}-map`, () => table(points.order.slice().sort())]], canvases: [["Map", `${facts.title}-map`, () => { view.draw(); return view.canvas; }]] });

  const button = (text, name, act) => h("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
  const modes = h("fieldset", { class: "modes" }, h("legend", { class: "unseen" }, "What dragging does"),
    [["move", "Move"], ["lasso", "Lasso"], ["rectangle", "Rectangle"]].map(([value, name], k) =>
      h("label", {}, h("input", { type: "radio", name: "mode", value, checked: k === 0, onchange: () => view.setMode(value) }), ` ${name}`)));
  const tools = h("div", { class: "filters" },
    h("label", {}, "Colours ", h("select", { onchange: (event) => go(changed({ by: event.target.value }), true) }, by.options.map((one) => h("option", { value: one.by, selected: one.by === by.by }, one.name)))),
    modes,
    h("span", { class: "tools" }, button("+", "Zoom in", view.zoomIn), button("−", "Zoom out", view.zoomOut), button("all", "Show all", view.showAll), h("button", { type: "button", onclick: view.selectView }, "Select view")));
  const content = [title, tools, h("div", { class: "maparea" }, h("div", {}, view.canvas, tip), legend(by, counts, paint)),
    h("p", { class: "small", id: "map-keys" }, "Drag to move, Shift and drag for a lasso. Keys: arrows move, plus and minus zoom, Home shows all, S selects all items in view, Enter opens the item nearest to the middle, Escape clears the selection."),
    list, about(told), maker(told), exports];
  const shown = () => {
    view.draw();
    if (before.numbers) select(before.numbers);
    else if (before.problem) {
      note("");
      list.replaceChildren(h("p", { class: "small" }, before.problem));
    }
  };
  return { content, shown, leave: () => { chosen = null; window.removeEventListener("themechange", paint); view.leave(); } };
}

const hint = () => `Choose a point to open its item. ${/Mac/.test(navigator.platform) ? "Cmd" : "Ctrl"} and the wheel zoom; so does the wheel alone while the map has the focus.`;

/** A table of what colours stand for, with numbers of items; boxes hide. */
function legend(by, counts, paint) {
  const boxes = [];
  const change = () => {
    hidden.of = new Set(boxes.filter(({ box }) => !box.checked).map(({ k }) => k));
    paint();
  };
  const all = (on) => () => {
    for (const { box } of boxes) box.checked = on;
    change();
  };
  const rows = by.list.map((one, k) => {
    if (!counts[k]) return null;
    const box = h("input", { type: "checkbox", checked: !hidden.of.has(k), onchange: change });
    boxes.push({ box, k });
    return h("tr", {}, h("th", { scope: "row" }, h("label", { title: one.more ? `${one.name}: ${one.more}` : one.name }, box, h("span", { class: "swatch", style: { background: one.color } }),
      h("span", { class: "name" }, one.name, one.more ? h("span", { class: "small" }, ` ${one.more}`) : null))), h("td", {}, count(counts[k])));
  });
  const repeats = by.list.length - 1 > COLORS.length ? h("p", { class: "small" }, `Colours repeat after ${COLORS.length}: show only some to tell them apart.`) : null;
  return h("div", { class: "legend" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Legend" }, h("table", {}, h("caption", {}, `Items by ${by.name}`), h("tbody", {}, rows))), repeats,
    h("p", { class: "tools" }, h("button", { type: "button", onclick: all(true) }, "Show all"), h("button", { type: "button", onclick: all(false) }, "Hide all")));
}

function about({ map }) {
  const left = map.n - map.n_placed;
  return h("p", { class: "small mapnote" }, map.method === "spectral" ? `Spectral embedding of ${map.n_arranged < map.n_placed ? `${count(map.n_arranged)} items; the others are placed by their similarities to these` : "all items"}, by the words of items; classes are not used.`
    : `t-SNE of ${map.n_arranged < map.n_placed ? `${count(map.n_arranged)} items; the others lie between their nearest neighbours among these` : "all items"}, by the similarity of their words; classes are not used.`,
  map.named ? "" : " Clusters are those of spectral clustering.", left ? ` ${plural(left, "item")} without words of the vocabulary ${left === 1 ? "is" : "are"} not on the map.` : "", ` ${map.note}`);
}

/** Makes a map, and tells how far it is. */
function maker(told) {
  const place = h("div", { class: "maker" });
  const state = h("p", { role: "status" });
  const bar = h("progress", { "aria-label": "Progress of the map" });
  async function follow(first) {
    let now = first;
    while (now.running) {
      const { step, done, total, seconds } = now.running;
      state.textContent = `${step[0].toUpperCase()}${step.slice(1)}${total ? `, ${percent(done / total, 0)}` : ""} · ${seconds.toFixed(0)} s`;
      if (total) Object.assign(bar, { max: total, value: done });
      else bar.removeAttribute("value");
      await new Promise((wait) => setTimeout(wait, 400));
      if (!place.isConnected && now !== first) return;
      try {
        now = await api("map");
      } catch (error) {
        return place.replaceChildren(h("p", { class: "problem", role: "alert" }, error.message));
      }
    }
    if (now.problem) return offer(now);
    go(changed({}), true);
  }
  function offer(now) {
    const start = (method) => async () => {
      place.replaceChildren(state, bar);
      state.textContent = "Starting …";
      try {
        follow(await api("map/make", { method }, { method: "POST" }));
      } catch (error) {
        place.replaceChildren(h("p", { class: "problem", role: "alert" }, error.message));
      }
    };
    place.replaceChildren(...[now.problem ? h("p", { class: "problem", role: "alert" }, now.problem) : null,
      now.map ? null : h("p", { class: "lead" }, "These items have no map yet. A spectral map takes seconds for 10,000 items, t-SNE up to a minute or two."),
      h("p", { class: "tools" }, Object.entries(METHODS).filter(([method]) => method !== now.map?.method).map(([method, name]) =>
        h("button", { type: "button", onclick: start(method) }, `${now.made.includes(method) ? "Show the" : "Make a"} map by ${name}`)))].filter(Boolean));
  }
  if (told.running) {
    place.replaceChildren(state, bar);
    follow(told);
  } else offer(told);
  return place;
}
