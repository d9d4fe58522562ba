// Draws the hierarchy of a report, in place of the picture that pages without scripts show.

import { icicle } from "./icicle.js";

const tree = JSON.parse(document.getElementById("tree-data").textContent);
const place = document.getElementById("tree-place");
const card = (n, group) => (n === tree.n_groups ? document.getElementById(`group-${group}`) : null);
const drawn = icicle(tree, tree.n_groups, (n, group) => {
  if (card(n, group)) location.hash = `group-${group}`;
});
place.replaceChildren(drawn.element);
drawn.draw();
const recolor = () => window.dispatchEvent(new Event("themechange"));
for (const input of document.querySelectorAll(".theme input")) input.addEventListener("change", recolor);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
