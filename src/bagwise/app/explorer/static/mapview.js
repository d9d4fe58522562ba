// Many points on a canvas. They are written into an array of pixels, which is faster than any drawing command where
// there is no graphics processor: 100,000 points take some milliseconds.

import { h } from "./dom.js";

const CELLS = 256; // of the grid by which points are found, along each axis
const NEAR = 14; // pixels within which a point is found
const STEP = 0.2; // of the view, by an arrow key
const ZOOM = 1.5; // by a key or a button

/** Points with a grid to find them; those that are not placed are left out. */
export function makePoints(xy, placed) {
  const numbers = [];
  let [left, bottom, right, top] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let k = 0; k < placed.length; k++) {
    if (!placed[k]) continue;
    numbers.push(k);
    left = Math.min(left, xy[2 * k]);
    right = Math.max(right, xy[2 * k]);
    bottom = Math.min(bottom, xy[2 * k + 1]);
    top = Math.max(top, xy[2 * k + 1]);
  }
  if (!numbers.length) [left, bottom, right, top] = [-1, -1, 1, 1];
  const size = Math.max(right - left, top - bottom, 1e-6);
  const cell = size / CELLS;
  const cellOf = (k) => Math.min(Math.floor((xy[2 * k + 1] - bottom) / cell), CELLS - 1) * CELLS + Math.min(Math.floor((xy[2 * k] - left) / cell), CELLS - 1);
  const starts = new Int32Array(CELLS * CELLS + 1);
  for (const k of numbers) starts[cellOf(k) + 1]++;
  for (let c = 0; c < CELLS * CELLS; c++) starts[c + 1] += starts[c];
  const next = starts.slice();
  const members = new Int32Array(numbers.length);
  for (const k of numbers) members[next[cellOf(k)]++] = k;
  const order = shuffled(numbers);
  const drawn = Float32Array.from({ length: 2 * order.length }, (_, k) => xy[2 * order[k >> 1] + (k & 1)]); // as they are drawn, one after the other
  return { xy, drawn, order, left, bottom, right, top, cell, starts, members };
}

/** The same order each time, in which no class lies on top of the others. */
function shuffled(numbers) {
  const order = Int32Array.from(numbers);
  let seed = 12345;
  for (let k = order.length - 1; k > 0; k--) {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    const other = Math.floor((seed / 4294967296) * (k + 1));
    [order[k], order[other]] = [order[other], order[k]];
  }
  return order;
}

/**
 * @param {object} points of makePoints
 * @param {object} act what is done: tell(number or null, byKey), open(number), selected(numbers), moved(view)
 */
export function mapView(points, label, act) {
  const canvas = h("canvas", { class: "map", tabindex: 0, role: "img", "aria-label": label, "aria-describedby": "map-keys" });
  const pen = canvas.getContext("2d", { alpha: false });
  let colors = { each: new Uint16Array(0), of: new Uint16Array(0), words: new Uint32Array(1), shown: new Uint8Array(1), last: -1 };
  let selected = null; // one byte for each point, in the order of drawing
  let marked = null; // the item that the address names
  let pointed = null; // the item under the pointer, or nearest to the middle
  let keyed = false; // whether that was found by a key
  let shape = null; // of the selection that is being drawn, in pixels of the page
  let view = whole();
  let image = null;
  let buffer = null;
  let frame = 0;

  function whole() {
    return { x: (points.left + points.right) / 2, y: (points.bottom + points.top) / 2, zoom: 1 };
  }
  /** Pixels of the page for a unit of the map. */
  function scale() {
    const wide = Math.max(points.right - points.left, 1e-6);
    const high = Math.max(points.top - points.bottom, 1e-6);
    return 0.94 * view.zoom * Math.min(canvas.clientWidth / wide, canvas.clientHeight / high);
  }
  const toPage = (k) => {
    const by = scale();
    return [canvas.clientWidth / 2 + (points.xy[2 * k] - view.x) * by, canvas.clientHeight / 2 - (points.xy[2 * k + 1] - view.y) * by];
  };
  const radius = () => Math.min(Math.max(1.6 * view.zoom ** 0.35 * (20000 / Math.max(points.order.length, 200)) ** 0.22, 1), 7);

  function draw() {
    frame = 0;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio);
    const height = Math.round(canvas.clientHeight * ratio);
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      image = null;
    }
    if (image === null) {
      image = pen.createImageData(width, height);
      buffer = new Uint32Array(image.data.buffer);
    }
    const style = getComputedStyle(canvas);
    const paper = word(style.getPropertyValue("--surface"));
    const ink = word(style.getPropertyValue("--ink"));
    buffer.fill(paper);
    const by = scale() * ratio;
    const x0 = width / 2 - view.x * by;
    const y0 = height / 2 + view.y * by;
    const disc = stamp(radius() * ratio, width);
    const rim = stamp(radius() * ratio + 1.5 * ratio, width);
    const { of, words, shown, last } = colors;
    const fade = words.map((color) => mixed(color, paper));
    const margin = rim.reach;
    const [right, bottom] = [width - margin, height - margin];
    const put = (px, py, with_, color) => {
      const x = (x0 + px * by + 0.5) | 0;
      const y = (y0 - py * by + 0.5) | 0;
      if (x < margin || y < margin || x >= right || y >= bottom) return;
      const middle = y * width + x;
      for (let s = 0; s < with_.length; s++) buffer[middle + with_[s]] = color;
    };
    /** Draw those of some categories that are selected, or are not. */
    const layer = (wanted, chosen, colored) => {
      const { drawn } = points;
      for (let i = 0; i < of.length; i++) {
        const what = of[i];
        if (wanted[what] && (selected === null || selected[i] === chosen)) put(drawn[2 * i], drawn[2 * i + 1], disc.places, colored[what]);
      }
    };
    const top = shown.map((on, k) => (k === last ? on : 0));
    const rest = shown.map((on, k) => (k === last ? 0 : on));
    for (const [chosen, colored] of selected === null ? [[0, words]] : [[0, fade], [1, words]]) {
      layer(rest, chosen, colored);
      if (last >= 0) layer(top, chosen, colored);
    }
    for (const k of [marked, pointed]) {
      if (k === null) continue;
      put(points.xy[2 * k], points.xy[2 * k + 1], rim.places, ink);
      put(points.xy[2 * k], points.xy[2 * k + 1], disc.places, words[colors.each[k]]);
    }
    pen.putImageData(image, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.strokeStyle = style.getPropertyValue("--ink");
    pen.lineWidth = 1.5;
    if (marked !== null) {
      pen.beginPath();
      pen.arc(...toPage(marked), 14, 0, 7);
      pen.stroke();
    }
    if (shape?.length > 1) {
      pen.setLineDash([5, 4]);
      pen.beginPath();
      shape.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
      pen.stroke();
      pen.setLineDash([]);
    }
  }
  const redraw = () => { frame ||= requestAnimationFrame(draw); };
  let telling = 0;
  function move(to) {
    view = to;
    redraw();
    clearTimeout(telling);
    telling = setTimeout(() => act.moved(view), 300);
  }
  function zoomAt(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    const old = scale();
    const zoom = Math.min(Math.max(view.zoom * factor, 0.5), 5000);
    const now = (old * zoom) / view.zoom;
    const [dx, dy] = [x - canvas.clientWidth / 2, canvas.clientHeight / 2 - y];
    move({ x: view.x + dx / old - dx / now, y: view.y + dy / old - dy / now, zoom });
  }
  const pan = (dx, dy) => move({ ...view, x: view.x - dx / scale(), y: view.y + dy / scale() });

  /** The nearest point that is shown, or null. */
  function find(x, y, within = NEAR) {
    const by = scale();
    const [px, py] = [view.x + (x - canvas.clientWidth / 2) / by, view.y - (y - canvas.clientHeight / 2) / by];
    let [found, best] = [null, within / by];
    for (const k of inside(px - best, py - best, px + best, py + best)) {
      const far = Math.hypot(points.xy[2 * k] - px, points.xy[2 * k + 1] - py);
      if (far < best) [found, best] = [k, far];
    }
    return found;
  }
  /** All points that are shown in a rectangle of the map. */
  function* inside(left, bottom, right, top) {
    const column = (x) => Math.min(Math.max(Math.floor((x - points.left) / points.cell), 0), CELLS - 1);
    const row = (y) => Math.min(Math.max(Math.floor((y - points.bottom) / points.cell), 0), CELLS - 1);
    for (let r = row(bottom); r <= row(top); r++) {
      for (let i = points.starts[r * CELLS + column(left)]; i < points.starts[r * CELLS + column(right) + 1]; i++) {
        const k = points.members[i];
        const [x, y] = [points.xy[2 * k], points.xy[2 * k + 1]];
        if (x >= left && x <= right && y >= bottom && y <= top && colors.shown[colors.each[k]]) yield k;
      }
    }
  }
  /** The points in a polygon of the page. */
  function enclosed(polygon) {
    const by = scale();
    const corners = polygon.map(([x, y]) => [view.x + (x - canvas.clientWidth / 2) / by, view.y - (y - canvas.clientHeight / 2) / by]);
    const xs = corners.map(([x]) => x);
    const ys = corners.map(([, y]) => y);
    const found = [];
    for (const k of inside(Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys))) {
      const [x, y] = [points.xy[2 * k], points.xy[2 * k + 1]];
      let odd = false;
      for (let a = 0, b = corners.length - 1; a < corners.length; b = a++) {
        const [[xa, ya], [xb, yb]] = [corners[a], corners[b]];
        if (ya > y !== yb > y && x < ((xb - xa) * (y - ya)) / (yb - ya) + xa) odd = !odd;
      }
      if (odd) found.push(k);
    }
    return Int32Array.from(found.sort((a, b) => a - b));
  }
  const selectView = () => act.selected(enclosed([[0, 0], [canvas.clientWidth, 0], [canvas.clientWidth, canvas.clientHeight], [0, canvas.clientHeight]]));
  const centre = () => find(canvas.clientWidth / 2, canvas.clientHeight / 2, Infinity);
  const open = (k) => k === null || act.open(k);
  function point(k, byKey) {
    keyed = byKey;
    if (k === pointed) return;
    pointed = k;
    redraw();
    act.tell(k, byKey);
  }

  // Pointers: one moves, or draws a selection; two zoom.
  let mode = "move";
  const held = new Map();
  let drag = null;
  const at = (event) => [event.offsetX, event.offsetY];
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, at(event));
    const how = mode === "move" && event.shiftKey ? "lasso" : mode;
    drag = held.size === 1 ? { how, start: at(event), moved: false } : { how: "pinch", moved: true };
    shape = how === "move" || held.size > 1 ? null : [at(event)];
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!held.has(event.pointerId)) {
      const still = keyed && !event.movementX && !event.movementY; // the page moved under a pointer that rests
      if (event.pointerType !== "touch" && !still) point(find(x, y), false);
      return;
    }
    const [oldX, oldY] = held.get(event.pointerId);
    const [ax, ay] = middle();
    const before = spread();
    held.set(event.pointerId, [x, y]);
    if (drag.how === "pinch") {
      const [bx, by] = middle();
      pan(bx - ax, by - ay);
      if (before > 0) zoomAt(spread() / before, bx, by);
      return;
    }
    drag.moved ||= Math.hypot(x - drag.start[0], y - drag.start[1]) > 4;
    if (!drag.moved) return;
    if (drag.how === "move") pan(x - oldX, y - oldY);
    else if (drag.how === "lasso") shape.push([x, y]);
    else shape = [drag.start, [x, drag.start[1]], [x, y], [drag.start[0], y]];
    redraw();
  });
  const middle = () => {
    const all = [...held.values()];
    return [0, 1].map((axis) => all.reduce((sum, one) => sum + one[axis], 0) / all.length);
  };
  const spread = () => {
    const [one, two] = [...held.values()];
    return two ? Math.hypot(one[0] - two[0], one[1] - two[1]) : 0;
  };
  function release(event) {
    if (!held.delete(event.pointerId) || drag === null) return;
    const done = drag;
    if (held.size) return; // the other finger
    drag = null;
    const polygon = shape;
    shape = null;
    redraw();
    if (event.type === "pointercancel") return;
    if (done.moved && done.how !== "move" && done.how !== "pinch") act.selected(enclosed(polygon));
    else if (!done.moved) {
      const found = find(...at(event));
      if (found === null) return;
      if (event.pointerType === "touch" && found !== pointed) point(found, false); // the first touch tells, the second opens
      else act.open(found);
    }
  }
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => held.size || keyed || point(null, false));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return; // the page scrolls
    event.preventDefault();
    zoomAt(Math.exp(-event.deltaY * 0.002), event.offsetX, event.offsetY);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (to) pan(STEP * to[0] * canvas.clientWidth, STEP * to[1] * canvas.clientHeight);
    else if (event.key === "+" || event.key === "=") zoomAt(ZOOM);
    else if (event.key === "-") zoomAt(1 / ZOOM);
    else if (event.key === "Home" || event.key === "0") move(whole());
    else if (event.key === "s") return event.preventDefault(), selectView();
    else if (event.key === "Escape") return act.selected(null);
    else if (event.key === "Enter") return open(pointed ?? centre());
    else return;
    event.preventDefault();
    point(centre(), true);
  });
  const watch = new ResizeObserver(redraw);
  watch.observe(canvas);
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  window.addEventListener("themechange", redraw);
  scheme.addEventListener("change", redraw);
  return {
    canvas,
    draw,
    selectView,
    zoomIn: () => zoomAt(ZOOM),
    zoomOut: () => zoomAt(1 / ZOOM),
    showAll: () => move(whole()),
    setMode: (to) => { mode = to; canvas.dataset.mode = to; },
    setColors: (to) => {
      colors = { ...to, words: Uint32Array.from(to.list, word), of: Uint16Array.from(points.order, (k) => to.each[k]) };
      redraw();
    },
    setSelected: (numbers) => {
      const each = numbers === null ? null : new Uint8Array(points.xy.length / 2);
      numbers?.forEach((k) => { each[k] = 1; });
      selected = each && Uint8Array.from(points.order, (k) => each[k]);
      redraw();
    },
    setView: (to) => { view = to; redraw(); },
    mark: (number, zoom) => { marked = number; if (zoom) view = { x: points.xy[2 * number], y: points.xy[2 * number + 1], zoom }; redraw(); },
    leave: () => {
      watch.disconnect();
      clearTimeout(telling);
      cancelAnimationFrame(frame);
      window.removeEventListener("themechange", redraw);
      scheme.removeEventListener("change", redraw);
    },
  };
}

/** A disc, as distances from its middle in an array of pixels. */
function stamp(radius, width) {
  const reach = Math.ceil(radius);
  const places = [];
  for (let y = -reach; y <= reach; y++) for (let x = -reach; x <= reach; x++) if (x * x + y * y <= radius * radius + 0.25) places.push(y * width + x);
  return { reach, places: Int32Array.from(places) };
}

/** A colour #rrggbb as a pixel. */
function word(color) {
  const value = parseInt(color.trim().slice(1), 16);
  return ((255 << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

/** A colour that is mostly paper. */
function mixed(color, paper) {
  let out = 0;
  for (const shift of [0, 8, 16]) out |= Math.round(0.22 * ((color >> shift) & 255) + 0.78 * ((paper >> shift) & 255)) << shift;
  return (out | (255 << 24)) >>> 0;
}
