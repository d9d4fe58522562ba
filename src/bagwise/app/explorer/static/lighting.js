// The words of a group in items that are shown: marks in texts, weights over pictures, values of columns.

import { api, h } from "./dom.js";

/** Lights up a group in cells of items, which have `data-item`; `over(group)` are the attributes of what is hovered over. */
export function lighting(facts, numbers) {
  const asked = new Map();
  let now = null;
  const cells = () => numbers.map((number) => [number, document.querySelector(`[data-item="${number}"] .item`)]).filter(([, one]) => one);

  function off() {
    now = null;
    for (const one of document.querySelectorAll(".lit")) one.remove();
    for (const one of document.querySelectorAll(".unlit, .dim")) one.classList.remove("unlit", "dim");
  }
  async function on(group) {
    now = group;
    if (!asked.has(group)) asked.set(group, api("between/places", { n: facts.n_groups, group, items: numbers.join(",") }).then((told) => told.places, () => ({})));
    const places = await asked.get(group);
    if (now !== group) return;
    off();
    now = group;
    for (const [number, one] of cells()) draw(one, places[number] ?? {});
  }
  return { over: (group) => ({ onpointerenter: () => on(group), onpointerleave: off, onfocusin: () => on(group), onfocusout: off }), leave: off };
}

function draw(element, { text, heat, columns }) {
  const some = text ? text.some(([, mark]) => mark) : columns ? columns.length : heat?.some((row) => row.some((value) => value > 0));
  if (!some) return element.classList.add("dim");
  if (heat) {
    const canvas = h("canvas", { class: "lit over", width: heat[0].length, height: heat.length, "aria-hidden": "true" });
    paint(canvas, heat);
    return element.append(canvas);
  }
  element.querySelector(".excerpt")?.classList.add("unlit");
  return element.append(h("span", { class: "excerpt lit" }, text ? text.map(([piece, mark]) => (mark ? h("mark", { class: "for s4" }, piece) : piece))
    : columns.map(([name, value]) => `${name} ${Number(value.toPrecision(4))}`).join(", ")));
}

/** Darken what is not in the group. */
export function paint(canvas, heat) {
  const largest = Math.max(...heat.flat(), 1e-12);
  const pen = canvas.getContext("2d");
  const pixels = pen.createImageData(canvas.width, canvas.height);
  heat.flat().forEach((value, k) => pixels.data.set([20, 23, 26, Math.round(205 * (1 - Math.min(Math.max(value, 0) / (0.6 * largest), 1)))], 4 * k));
  pen.putImageData(pixels, 0, 0);
}
