// The frame of all pages: address, number of groups, navigation, colours.

import { address, go, parameters } from "./address.js";
import { api, h, percent, plural, say } from "./dom.js";
import * as overview from "./overview.js";
import * as groups from "./groups.js";
import * as items from "./items.js";
import * as between from "./between.js";
import * as labels from "./labels.js";
import * as map from "./map.js";
import * as search from "./search.js";
import * as steer from "./steer.js";
import * as compare from "./compare.js";
import * as clusters from "./clusters.js";
import { shows } from "./edits.js";

const PAGES = {
  "/": { name: "Overview", show: overview.show },
  "/clusters": { name: "Clusters", show: clusters.show },
  "/groups": { name: "Groups", show: groups.show },
  "/items": { name: "Items", show: items.show },
  "/between": { name: "Two classes", show: between.show },
  "/labels": { name: "Labels", show: labels.show },
  "/map": { name: "Map", show: map.show },
  "/search": { name: "Search", show: search.show },
  "/steer": { name: "Steer", show: steer.show },
  "/compare": { name: "Compare", show: compare.show },
};
const OF_CLASSES = new Set(["/between", "/labels"]);
const content = document.getElementById("content");
const slider = document.getElementById("size-slider");
const number = document.getElementById("size-number");
let facts = null; // what /api/overview said last
let turn = 0; // only the last of several requests is shown
let shownTurn = 0; // the last one that was
let leave = null; // what the page that is shown does when another comes

// Pages are drawn when their data has come, so that browsers cannot know how far they were scrolled down.
history.scrollRestoration = "manual";
const places = new Map(JSON.parse(sessionStorage.getItem("bagwise-places") ?? "[]")); // of entries of the history
let shown = {}; // the entry and the view that are shown
let entries = 0;
window.addEventListener("scroll", () => shown.entry === history.state?.entry && places.set(shown.entry, window.scrollY), { passive: true });
window.addEventListener("pagehide", () => sessionStorage.setItem("bagwise-places", JSON.stringify([...places])));

/** Views begin at the top; entries of the history to which somebody goes back are where they were. */
function place() {
  if (!history.state) history.replaceState({ entry: `${performance.timeOrigin} ${entries++}` }, "");
  const now = { entry: history.state.entry, view: `${location.pathname} ${parameters().get("item")} ${parameters().get("cluster")}` };
  if (now.entry !== shown.entry && places.has(now.entry)) window.scrollTo(0, places.get(now.entry));
  else if (now.view !== shown.view) window.scrollTo(0, 0);
  shown = now;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const to = new URL(link.href);
  if (to.origin !== location.origin || !(to.pathname in PAGES) || link.hasAttribute("download")) return;
  if (to.pathname === location.pathname && to.hash) return;
  event.preventDefault();
  go(to.pathname + to.search);
  content.focus({ preventScroll: true });
});
window.addEventListener("popstate", () => show());
window.addEventListener("navigate", () => show());

// The slider is logarithmic: equal ways are equal ratios of groups.
const toSize = (place) => {
  const { least_groups: low, most_groups: high } = facts;
  return Math.round(low * (high / low) ** (place / 1000));
};
const toPlace = (size) => {
  const { least_groups: low, most_groups: high } = facts;
  return high > low ? Math.round((1000 * Math.log(size / low)) / Math.log(high / low)) : 0;
};

function resize(size) {
  const bounded = Math.min(Math.max(size, facts.least_groups), facts.most_groups);
  number.value = bounded; // the next key goes on from here, also before there is an answer
  const given = Object.fromEntries(parameters());
  if (bounded !== facts.n_groups) delete given.group; // numbers of groups belong to a cut
  go(address(location.pathname, { ...given, n: bounded }), true);
}
slider.addEventListener("input", () => {
  number.value = toSize(Number(slider.value));
  resize(Number(number.value));
});
slider.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
  if (!step) return;
  event.preventDefault(); // one group at a time, not one place of the slider
  resize(Number(number.value) + step);
});
number.addEventListener("change", () => Number(number.value) >= 1 && resize(Math.round(Number(number.value))));
document.getElementById("size").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("size-default").addEventListener("click", () => resize(facts.default_groups));

const theme = document.getElementById("theme");
theme.addEventListener("change", () => {
  document.documentElement.dataset.theme = theme.value;
  localStorage.setItem("bagwise-theme", theme.value);
  window.dispatchEvent(new Event("themechange"));
});
theme.value = localStorage.getItem("bagwise-theme") ?? "auto";
document.documentElement.dataset.theme = theme.value;

function frame() {
  document.getElementById("title").textContent = facts.title;
  const nav = document.getElementById("nav");
  const home = overview.ofClusters(facts); // of a collection without classes: its clusters
  const named = Object.entries(PAGES).filter(([path]) => (path !== "/clusters" || (facts.clusters && !home)) && (facts.classes.length > 1 || !OF_CLASSES.has(path)));
  const here = home && location.pathname === "/clusters" ? "/" : location.pathname;
  nav.replaceChildren(...named.map(([path, page]) =>
    h("a", { href: address(path), "aria-current": path === here ? "page" : null }, path === "/" && home ? "Clusters" : page.name)));
  Object.assign(number, { min: facts.least_groups, max: facts.most_groups, value: facts.n_groups });
  slider.value = toPlace(facts.n_groups);
  slider.setAttribute("aria-valuetext", `${facts.n_groups} groups`);
  const output = document.getElementById("size-error");
  const apart = facts.seen?.n_seen && !facts.held_out; // the model's answers for those it was learned from say nothing
  const error = apart ? facts.seen.error_new : facts.error;
  const other = [null, facts.n_groups].includes(facts.answered_at) ? "" : `, measured at ${plural(facts.answered_at, "group")}`;
  output.textContent = error === null ? "" : `${percent(error)} of ${apart ? "new items" : "items"} wrong${other}`;
  document.title = `${PAGES[location.pathname].name} · ${facts.title} · bagwise`;
}

const SLOW = 300; // ms until a page that is not there yet shows that it is being made

async function show() {
  const mine = ++turn;
  const spinner = document.getElementById("spinner");
  setTimeout(() => { if (mine === turn && shownTurn !== mine) spinner.hidden = false; }, SLOW);
  try {
    const told = await api("overview", { n: parameters().get("n") });
    if (mine !== turn) return;
    facts = told;
    shows(facts);
    document.getElementById("size-default").textContent = facts.steer?.edited ? "as edited" : "as fitted";
    frame();
    const page = await PAGES[location.pathname].show(facts, parameters());
    if (mine !== turn) return;
    leave?.();
    leave = page.leave ?? null;
    const inside = content.contains(document.activeElement);
    content.replaceChildren(...[page.content].flat());
    if (inside && document.activeElement === document.body) content.focus({ preventScroll: true }); // what had it is gone
    page.shown?.();
    place();
    say(`${PAGES[location.pathname].name}, ${facts.n_groups} groups`);
  } catch (error) {
    if (mine !== turn) return;
    content.replaceChildren(h("p", { class: "problem", role: "alert" }, error.message));
    facts ??= await api("overview").catch(() => null); // the address may ask for what is not there: the pages stay
    if (facts && mine === turn) frame();
  } finally {
    if (mine === turn) {
      shownTurn = mine;
      spinner.hidden = true;
    }
  }
}

show();
