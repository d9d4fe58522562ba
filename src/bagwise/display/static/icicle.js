// The hierarchy as an icicle on a canvas: one row for each cut, words below. Wheel, drag, buttons and keys zoom.

import { N_COLOURS, count, h, plural } from "./dom.js";

const ROW = 22;
const HEAD = 92; // room for the number of groups

/**
 * @param {object} tree what /api/hierarchy says, or the data of a report
 * @param {number} current number of groups that is shown now
 * @param {(n: number, group: number) => void} choose called when a group is chosen
 */
export function icicle(tree, current, choose) {
  const rows = tree.rows.map((row) => ({ ...row, starts: starts(row.shares) }));
  const total = tree.n_words ?? tree.words.length; // a report has no row of words
  const words = tree.words && { n_groups: total, groups: tree.words, shares: tree.shares, starts: starts(tree.shares), names: tree.names, classes: null };
  if (words && total > rows[rows.length - 1].n_groups) rows.push(words);
  const canvas = h("canvas", { class: "icicle", tabindex: 0, role: "img",
    "aria-label": `Hierarchy of ${plural(total, "word")}: each row is a cut, from ${rows[0].n_groups} to ${rows[rows.length - 1].n_groups} groups. Plus and minus zoom, left and right move, Home shows all; up and down go from row to row, Enter opens the group in the middle.` });
  const tip = h("p", { class: "tip quiet" }, "Each row is a cut of the hierarchy; a group lies above its parts. Choose one to see its words; Ctrl and the wheel zoom.");
  let [from, to] = [0, 1]; // the part of all occurrences that is shown
  let frames = 0;
  let cursor = null; // the row that keys went to

  function draw() {
    frames = 0;
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = ROW * rows.length;
    if (!width) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const style = getComputedStyle(canvas);
    const color = (name) => style.getPropertyValue(name).trim();
    const series = Array.from({ length: N_COLOURS }, (_, k) => color(`--series-${k + 1}`));
    const [paper, ink, muted, surface, accent] = ["--paper", "--ink", "--muted", "--track", "--accent"].map(color);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const scale = (width - HEAD) / (to - from);
    rows.forEach((row, r) => {
      const y = ROW * r;
      pen.fillStyle = row.n_groups === current ? accent : muted;
      pen.textAlign = "end";
      pen.fillText(row.classes === null ? `${count(row.n_groups)} words` : count(row.n_groups), HEAD - 8, y + ROW / 2);
      pen.textAlign = "start";
      pen.save();
      pen.beginPath();
      pen.rect(HEAD, y, width - HEAD, ROW);
      pen.clip();
      let drawn = -1;
      for (let k = at(row.starts, from); k < row.groups.length && row.starts[k] < to; k++) {
        const left = HEAD + (row.starts[k] - from) * scale;
        const right = left + row.shares[k] * scale;
        if (right < drawn + 0.5) continue; // narrower than a pixel, and something is drawn there
        drawn = right;
        const class_ = row.classes === null ? -1 : row.classes[k];
        pen.globalAlpha = class_ < 0 ? 1 : 0.82;
        pen.fillStyle = class_ < 0 ? surface : series[class_ % N_COLOURS];
        const gap = right - left > 4 ? 1 : 0;
        pen.fillRect(left, y + 1, Math.max(right - left - gap, 0.5), ROW - 2);
        pen.globalAlpha = 1;
        const name = row.names?.[k];
        if (name && right - left > 34) {
          pen.fillStyle = class_ < 0 ? ink : paper;
          pen.save();
          pen.beginPath();
          pen.rect(left, y, right - left - 4, ROW);
          pen.clip();
          pen.fillText(name, Math.max(left, HEAD) + 5, y + ROW / 2);
          pen.restore();
        }
      }
      if (r === cursor) {
        const k = at(row.starts, (from + to) / 2);
        pen.strokeStyle = ink;
        pen.lineWidth = 2;
        pen.strokeRect(HEAD + (row.starts[k] - from) * scale, y + 1, Math.max(row.shares[k] * scale, 2), ROW - 2);
      }
      if (row.n_groups === current) {
        pen.strokeStyle = accent;
        pen.lineWidth = 2;
        pen.strokeRect(HEAD + 1, y + 1, width - HEAD - 2, ROW - 2);
      }
      pen.restore();
    });
  }
  const redraw = () => { frames ||= requestAnimationFrame(draw); };

  function zoom(factor, middle = (from + to) / 2) {
    const wide = Math.min(Math.max((to - from) * factor, 1e-6), 1);
    const part = (middle - from) / (to - from);
    from = Math.min(Math.max(middle - part * wide, 0), 1 - wide);
    to = from + wide;
    redraw();
  }
  const place = (event) => from + ((event.offsetX - HEAD) / (canvas.clientWidth - HEAD)) * (to - from);
  const hit = (event) => {
    const row = rows[Math.floor(event.offsetY / ROW)];
    const where = place(event);
    if (!row || event.offsetX < HEAD || where < 0 || where > 1) return null;
    const k = at(row.starts, where);
    return k < row.groups.length ? { row, k } : null;
  };
  function describe({ row, k }) {
    const name = row.names?.[k] ?? (row.classes === null ? `word ${row.groups[k]}` : `group ${row.groups[k]}`);
    const class_ = row.classes !== null && row.classes[k] >= 0 ? ` · speaks for ${tree.classes[row.classes[k]]}` : "";
    const share = `${(100 * row.shares[k]).toPrecision(3)} % of all ${tree.of ?? "occurrences"}`;
    return row.classes === null ? `${name}: ${share}` : `At ${plural(row.n_groups, "group")}: ${name} · ${share}${class_}`;
  }

  /** Tell the group of a row that is in the middle, and mark it. */
  function point(r) {
    cursor = Math.min(Math.max(r, 0), rows.length - 1);
    tip.setAttribute("aria-live", "polite");
    tip.textContent = describe({ row: rows[cursor], k: at(rows[cursor].starts, (from + to) / 2) });
    redraw();
  }

  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return; // the page scrolls
    event.preventDefault();
    zoom(Math.exp(event.deltaY * 0.002), place(event));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, from, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) {
      const found = hit(event);
      if (found) tip.textContent = describe(found);
      return;
    }
    const by = ((drag.x - event.clientX) / (canvas.clientWidth - HEAD)) * (to - from);
    drag.moved ||= Math.abs(drag.x - event.clientX) > 3;
    const wide = to - from;
    from = Math.min(Math.max(drag.from + by, 0), 1 - wide);
    to = from + wide;
    redraw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const chosen = drag && !drag.moved ? hit(event) : null;
    drag = null;
    if (chosen && chosen.row.classes !== null) choose(chosen.row.n_groups, chosen.row.groups[chosen.k]);
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const wide = to - from;
    const step = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    if (event.key === "+" || event.key === "=") zoom(0.6);
    else if (event.key === "-") zoom(1 / 0.6);
    else if (event.key === "Home") zoom(1e9);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      cursor = (cursor ?? Math.max(rows.findIndex((row) => row.n_groups === current), 0)) + (event.key === "ArrowUp" ? -1 : 1);
    } else if (event.key === "Enter") {
      const row = rows[cursor];
      if (row && row.classes !== null) choose(row.n_groups, row.groups[at(row.starts, (from + to) / 2)]);
      return;
    } else if (step) {
      from = Math.min(Math.max(from + step * wide, 0), 1 - wide);
      to = from + wide;
      redraw();
    } else return;
    event.preventDefault();
    if (cursor !== null) point(cursor);
  });
  const watch = new ResizeObserver(redraw);
  watch.observe(canvas);
  window.addEventListener("themechange", redraw);
  const button = (text, label, act) => h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const element = h("div", { class: "tree" }, h("div", { class: "tools" }, button("+", "Zoom in", () => zoom(0.6)), button("−", "Zoom out", () => zoom(1 / 0.6)), button("all", "Show all", () => zoom(1e9))), canvas, tip);
  return {
    element,
    draw,
    focus: (word) => { // bring a word into view
      const k = tree.words.indexOf(word);
      if (k < 0) return;
      const middle = words.starts[k] + words.shares[k] / 2;
      const wide = Math.min(Math.max(words.shares[k] * 40, 1e-5), 1);
      from = Math.min(Math.max(middle - wide / 2, 0), 1 - wide);
      to = from + wide;
      redraw();
    },
    leave: () => { watch.disconnect(); window.removeEventListener("themechange", redraw); },
  };
}

function starts(shares) {
  let sum = 0;
  return shares.map((share) => { const start = sum; sum += share; return start; });
}

/** The last segment that starts at or before a place. */
function at(list, where) {
  let [low, high] = [0, list.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] <= where) low = middle; else high = middle;
  }
  return low;
}
