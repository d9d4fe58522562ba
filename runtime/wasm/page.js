"use strict";
// The page: reads items, calls the C interface of the runtime in WebAssembly, and shows answers. Nothing is sent anywhere.

const $ = (id) => document.getElementById(id);
const IMAGES = 0, TEXTS = 1;
const LONGEST_SIDE = 4096; // larger images are shrunk by the browser first
const MOST_SHOWN = 10, MOST_MARKED = 5000, PLACE_BYTES = 56;
let wasm = null, model = 0, workspace = 0, last = null;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A bar of a part of the width; the number stands beside it. */
function bar(part) {
  const filled = element("span");
  filled.style.width = `${100 * part}%`;
  return element("span", { class: "bar", "aria-hidden": "true" }, filled);
}

function complain(message) {
  $("problem").textContent = message;
  $("problem").hidden = !message;
}

/** Copy bytes into the memory of the runtime, call a function with their address, and free them. */
function withBytes(bytes, call) {
  const place = wasm._malloc(Math.max(bytes.length, 8));
  if (!place) throw new Error("There is not enough memory.");
  try {
    wasm.HEAPU8.set(bytes, place);
    return call(place);
  } finally {
    wasm._free(place);
  }
}

function load(bytes, name) {
  const text = withBytes(new Uint8Array(1024), (error) => {
    const made = withBytes(bytes, (place) => wasm._bagwise_load_memory(place, bytes.length, 0, error, 1024));
    if (!made) return wasm.UTF8ToString(error);
    if (!wasm._bagwise_n_classes(made)) {
      wasm._bagwise_free(made);
      return "This model has no classifier.";
    }
    const room = wasm._bagwise_workspace_new(made, 1, error, 1024);
    if (!room) {
      wasm._bagwise_free(made);
      return wasm.UTF8ToString(error);
    }
    if (workspace) wasm._bagwise_workspace_free(workspace), wasm._bagwise_free(model);
    [model, workspace] = [made, room];
    return "";
  });
  if (text) return complain(`${name}: ${text}`);
  complain("");
  last = null;
  $("answer").hidden = true;
  const items = wasm._bagwise_items_of(model), n = wasm._bagwise_n_classes(model);
  $("for-images").hidden = items !== IMAGES;
  $("for-texts").hidden = items !== TEXTS;
  $("for-table").hidden = items === IMAGES || items === TEXTS;
  const kind = items === IMAGES ? "images" : items === TEXTS ? "texts" : "rows of a table";
  const words = wasm._bagwise_n_words(model).toLocaleString("en");
  $("about").textContent = `${name}: ${kind} of ${n} classes, by ${words} words in ${wasm._bagwise_n_groups(model)} groups.`;
}

/** Show the answer for the item that was just classified; `draw` shows why. */
function answer(result, milliseconds, draw) {
  if (result < 0) return complain(wasm.UTF8ToString(wasm._bagwise_error(workspace)));
  complain("");
  const n = wasm._bagwise_n_classes(model), calibrated = wasm._bagwise_has_probabilities(model) === 1;
  const values = withBytes(new Uint8Array(8 * n), (place) => {
    if (calibrated) wasm._bagwise_probabilities(workspace, place);
    const from = (calibrated ? place : wasm._bagwise_scores(workspace)) / 8;
    return [...wasm.HEAPF64.subarray(from, from + n)];
  });
  const order = values.map((_, k) => k).sort((a, b) => values[b] - values[a] || a - b);
  const name = (k) => wasm.UTF8ToString(wasm._bagwise_class_name(model, k));
  const shown = (value) => (calibrated ? `${(100 * value).toFixed(1)} %` : value.toPrecision(3));
  $("measure").textContent = calibrated ? "probability" : "score";
  $("said").textContent = `${name(result)} (${shown(values[result])}), in ${milliseconds.toFixed(0)} ms.`;
  const [most, least] = [values[order[0]], calibrated ? 0 : values[order[order.length - 1]]];
  $("classes").replaceChildren(...order.slice(0, MOST_SHOWN).map((k) => element("tr", {},
    element("th", { scope: "row" }, name(k)),
    element("td", {}, shown(values[k])),
    element("td", {}, bar(most > least ? (values[k] - least) / (most - least) : 1)))));
  $("why").hidden = !draw;
  if (draw && wasm._bagwise_explain(workspace, result) >= 0) draw(places(), name(result));
  $("answer").hidden = false;
  last = () => draw && draw(places(), name(result)); // colours of the page may change
}

/** Parts of the item and what they add to the score, as `bagwise_place` of bagwise.h has them. */
function places() {
  return withBytes(new Uint8Array(8), (count) => {
    const start = wasm._bagwise_places(workspace, count), view = new DataView(wasm.HEAPU8.buffer);
    const n = view.getUint32(count, true);
    return Array.from({ length: n }, (_, k) => {
      const at = start + PLACE_BYTES * k;
      return {
        x: view.getFloat64(at, true), y: view.getFloat64(at + 8, true), side: view.getFloat64(at + 16, true),
        start: Number(view.getBigUint64(at + 24, true)), end: Number(view.getBigUint64(at + 32, true)),
        word: view.getInt32(at + 40, true), weight: view.getFloat64(at + 48, true),
      };
    });
  });
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map((two) => parseInt(two, 16));

async function classifyImage(file) {
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    return complain(`${file.name || "The file"} is no image that this browser reads.`);
  }
  const factor = Math.min(1, LONGEST_SIDE / Math.max(picture.width, picture.height));
  const [width, height] = [picture.width, picture.height].map((side) => Math.max(1, Math.round(side * factor)));
  const canvas = element("canvas", { width, height, role: "img" });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "white"; // behind transparent pixels
  pen.fillRect(0, 0, width, height);
  pen.drawImage(picture, 0, 0, width, height);
  const plain = pen.getImageData(0, 0, width, height);
  const started = performance.now();
  const result = withBytes(plain.data, (place) => wasm._bagwise_image(workspace, place, width, height, 4, 0));
  answer(result, performance.now() - started, (found, name) => {
    pen.putImageData(plain, 0, 0);
    heat(pen, width, height, found);
    canvas.setAttribute("aria-label", `The image, with what adds to the score of ${name} and what lowers it`);
    $("shown").replaceChildren(canvas);
    $("legend").textContent = `What adds to the score of ${name} (green) and what lowers it (red).`;
  });
}

/** Paint the sums of the weights of patches over a picture, on a grid of cells. */
function heat(pen, width, height, found) {
  const n = 48, step = Math.max(width, height) / n, columns = Math.ceil(width / step), rows = Math.ceil(height / step);
  const sums = new Float64Array(rows * columns);
  for (const { x, y, side, weight } of found) {
    const [left, right] = [Math.max(0, Math.floor(x / step)), Math.min(columns - 1, Math.floor((x + side - 1) / step))];
    const [top, bottom] = [Math.max(0, Math.floor(y / step)), Math.min(rows - 1, Math.floor((y + side - 1) / step))];
    const each = weight / ((right - left + 1) * (bottom - top + 1));
    for (let row = top; row <= bottom; row++) for (let column = left; column <= right; column++) sums[row * columns + column] += each;
  }
  const sizes = Float64Array.from(sums, Math.abs).sort();
  const largest = Math.max(sizes[Math.floor(0.97 * (sizes.length - 1))], 1e-12), colors = [color("--good"), color("--bad")];
  const small = new OffscreenCanvas(columns, rows), brush = small.getContext("2d"), pixels = brush.createImageData(columns, rows);
  sums.forEach((value, k) => pixels.data.set([...colors[value < 0 ? 1 : 0], Math.round(150 * Math.min(Math.abs(value) / largest, 1))], 4 * k));
  brush.putImageData(pixels, 0, 0);
  pen.drawImage(small, 0, 0, columns, rows, 0, 0, columns * step, rows * step);
}

function classifyText(text) {
  const bytes = new TextEncoder().encode(text);
  const started = performance.now();
  const result = withBytes(bytes, (place) => wasm._bagwise_text(workspace, place, bytes.length));
  answer(result, performance.now() - started, (found, name) => {
    const largest = found.reduce((most, { weight }) => Math.max(most, Math.abs(weight)), 1e-12), parts = [], decoder = new TextDecoder();
    let done = 0;
    for (const { start, end, weight } of found) {
      if (start < done || !weight) continue;
      if (parts.length >= 2 * MOST_MARKED) break;
      const strength = Math.max(1, Math.ceil(4 * Math.abs(weight) / largest)), kind = weight > 0 ? "for" : "against";
      parts.push(decoder.decode(bytes.subarray(done, start)));
      parts.push(element("mark", { class: `${kind} s${strength}`, title: `${weight > 0 ? "adds" : "lowers by"} ${Math.abs(weight).toPrecision(2)}` }, decoder.decode(bytes.subarray(start, end))));
      done = end;
    }
    $("shown").replaceChildren(element("div", { class: "text", tabindex: 0, role: "region", "aria-label": "The text, with marked words" }, ...parts, decoder.decode(bytes.subarray(done))));
    $("legend").textContent = `Words that add to the score of ${name} (green), and words that lower it (red, underlined).`
      + (parts.length >= 2 * MOST_MARKED ? ` Only the first ${MOST_MARKED.toLocaleString("en")} are marked.` : "");
  });
}

function classifyRows(text) {
  const n = wasm._bagwise_n_words(model), lines = text.split(/\r?\n/).filter((line) => line.trim());
  const rows = lines.map((line) => line.split(",").map((field) => (field.trim() ? Number(field) : NaN)));
  const wrong = rows.findIndex((row) => row.length !== n || !row.every(Number.isFinite));
  if (!rows.length) return complain(`Give a line of ${n} numbers, separated by commas.`);
  if (wrong >= 0) return complain(`Row ${wrong + 1} must be ${n} numbers, separated by commas; got "${lines[wrong].slice(0, 80)}".`);
  const started = performance.now(), found = [];
  let result = -1;
  for (const row of rows) {
    result = withBytes(new Uint8Array(new Float64Array(row).buffer), (place) => wasm._bagwise_row(workspace, place, n));
    if (result < 0) break;
    found.push(wasm.UTF8ToString(wasm._bagwise_class_name(model, result)));
  }
  answer(result, performance.now() - started, rows.length === 1 ? null : () => {
    $("shown").replaceChildren(element("ol", {}, ...found.map((name) => element("li", {}, name))));
    $("legend").textContent = "The classes of all lines; the table has the scores of the last one.";
  });
}

async function take(file) {
  if (/\.(bagwise|safetensors)$/i.test(file.name)) return load(new Uint8Array(await file.arrayBuffer()), file.name);
  if (!model) return complain("There is no model yet. Choose a model file.");
  const items = wasm._bagwise_items_of(model);
  if (items === IMAGES) return classifyImage(file);
  const field = items === TEXTS ? $("text") : $("row");
  field.value = await file.text();
  (items === TEXTS ? classifyText : classifyRows)(field.value);
}

/** Call a function with a file or a text, if there is one; what goes wrong is shown. */
async function attempt(call, given) {
  try {
    if (given !== undefined) await call(given);
  } catch (error) {
    complain(String(error.message || error));
  }
}

function listen() {
  $("model").addEventListener("change", (event) => attempt(take, event.target.files[0]));
  $("image").addEventListener("change", (event) => attempt(take, event.target.files[0]));
  for (const [field, button, classify] of [["text", "classify-text", classifyText], ["row", "classify-row", classifyRows]]) {
    $(button).addEventListener("click", () => attempt(classify, $(field).value));
    $(field).addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) attempt(classify, $(field).value);
    });
  }
  const over = (on) => document.body.classList.toggle("over", on);
  addEventListener("dragover", (event) => { event.preventDefault(); over(true); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) over(false); });
  addEventListener("drop", (event) => { event.preventDefault(); over(false); attempt(take, event.dataTransfer.files[0]); });
  addEventListener("paste", (event) => { attempt(take, event.clipboardData.files[0]); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => last && last());
}

(async () => {
  try {
    wasm = await Bagwise();
    listen();
    if (window.BAGWISE_MODEL) load(Uint8Array.from(atob(window.BAGWISE_MODEL), (c) => c.charCodeAt(0)), "The model");
    else $("about").textContent = "Choose a model file.";
  } catch (error) {
    complain(`The runtime cannot be started: ${error.message || error}. It needs a browser of 2023 or later.`);
  }
})();
