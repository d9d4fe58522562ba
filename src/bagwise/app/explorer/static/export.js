// What every page can export: tables as CSV, figures as PNG and SVG, and the Python lines that give the same.

import { parameters } from "./address.js";
import { api, csv, download, h, say } from "./dom.js";

// What is copied from style sheets into a picture, which has none.
const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-family", "font-size", "text-anchor", "paint-order"];
const SCALE = 2; // pixels of PNG for one of a drawing

/**
 * What a page exports, shown when it is opened.
 * @param {string} page name of the page on the server
 * @param {{tables?: Array, drawings?: Array, canvases?: Array, lines?: string, given?: object}} what
 *   tables: [label, file, () => rows]; drawings: [label, file, () => SVG element, on the page or not]; canvases: [label, file, () => canvas];
 *   lines: Python lines, if they are known; given: parameters of the page that its address does not have
 */
export function exporting(page, { tables = [], drawings = [], canvases = [], lines = null, given = {} } = {}) {
  const note = h("span", { class: "small", role: "status" });
  const button = (label, act) => h("button", { type: "button", onclick: async () => {
    note.textContent = "";
    try {
      await act();
    } catch (error) {
      note.textContent = error.message;
    }
  } }, label);
  const code = h("code", {});
  const copy = h("button", { type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
      say("Copied");
    } catch { // no permission, or not a secure address: the lines are marked instead
      getSelection().selectAllChildren(code);
    }
  } }, "Copy");
  const box = h("details", { class: "exports" }, h("summary", {}, "Export"),
    h("div", { class: "filters" },
      tables.map(([label, file, rows]) => button(`${label} as CSV`, async () => download(`${file}.csv`, csv(await rows())))),
      drawings.map(([label, file, make]) => [
        button(`${label} as SVG`, async () => download(`${file}.svg`, (await drawn(make)).text, "image/svg+xml")),
        button(`${label} as PNG`, async () => savePicture(file, await raster(await drawn(make))))]),
      canvases.map(([label, file, make]) => button(`${label} as PNG`, async () => savePicture(file, await make()))),
      note),
    h("p", { class: "small" }, "The Python lines that give the same:"),
    h("div", { class: "lines" }, h("pre", { tabindex: 0, role: "region", "aria-label": "Python lines" }, code), copy));
  box.addEventListener("toggle", async () => {
    if (!box.open || code.textContent) return;
    try {
      code.textContent = lines ?? (await api(`python/${page}`, { ...Object.fromEntries(parameters()), ...given })).lines;
    } catch (error) {
      code.textContent = `# ${error.message}`;
    }
  });
  return box;
}

/** A drawing as a document; one that is not on the page is put there as long as its style is asked for. */
async function drawn(make) {
  const made = await make();
  if (made.isConnected) return standalone(made);
  const place = h("div", { class: "unseen", "aria-hidden": "true" }, made);
  document.body.append(place);
  try {
    return standalone(made);
  } finally {
    place.remove();
  }
}

/** An SVG element as a document of its own, with the colours and fonts that it has on the page. */
function standalone(drawn) {
  const { width, height } = drawn.viewBox.baseVal;
  const copy = drawn.cloneNode(true);
  const [shown, copied] = [[drawn, ...drawn.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  shown.forEach((element, k) => {
    const style = getComputedStyle(element);
    for (const name of DRAWN) copied[k].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "style", "role", "tabindex", "aria-label"]) copied[k].removeAttribute(name);
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width, height, fill: getComputedStyle(document.body).backgroundColor })) paper.setAttribute(name, value);
  copy.prepend(paper);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

async function raster({ text, width, height }) {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = h("canvas", { width: SCALE * width, height: SCALE * height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas;
  } finally {
    URL.revokeObjectURL(url);
  }
}

async function savePicture(file, canvas) {
  const made = await new Promise((done) => canvas.toBlob(done));
  if (made === null) throw new Error("The picture is too large for this browser.");
  download(`${file}.png`, made, "image/png");
}

/** An image with what is drawn over it, and a canvas as it is on the paper of the page. */
export function flattened(...layers) {
  const [width, height] = [Math.max(...layers.map((layer) => layer.naturalWidth ?? layer.width)), Math.max(...layers.map((layer) => layer.naturalHeight ?? layer.height))];
  const canvas = h("canvas", { width, height });
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, width, height);
  for (const layer of layers) {
    pen.filter = layer.tagName === "IMG" && layers.length > 1 ? getComputedStyle(layer).filter : "none";
    pen.drawImage(layer, 0, 0, width, height);
  }
  return canvas;
}
