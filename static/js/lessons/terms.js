// Words of the glossary in a lesson's prose: the first of each becomes a link, and what it means
// stands in a card while it is pointed at or has the focus.

import { el } from "../dom.js";

const data = document.getElementById("terms").dataset;
const terms = JSON.parse(data.terms);
const SPACED = !document.documentElement.lang.startsWith("zh");
const ESCAPED = /[.*+?^${}()|[\]\\]/g;

const forms = new Map();
for (const [id, { forms: list }] of Object.entries(terms)) {
  for (const form of list) forms.set(form.toLowerCase(), id);
}
const choices = [...forms.keys()]
  .sort((a, b) => b.length - a.length)
  .map((form) => form.replace(ESCAPED, "\\$&"))
  .join("|");
// A language with spaces has words; Chinese has none between them, Latin names in it have edges.
const pattern = SPACED
  ? new RegExp(`(?<![\\w-])(?:${choices})(?![\\w-])`, "giu")
  : new RegExp(`(?<![A-Za-z-])(?:${choices})(?![A-Za-z-])`, "giu");

function linkTo(id, text) {
  const link = el("a", "term", text);
  link.href = `${data.glossary}#${id}`;
  link.dataset.term = id;
  return link;
}

/** Links the first of each term in a text node; what is left of the node stays as it is. */
function linkIn(node, known) {
  for (const found of node.textContent.matchAll(pattern)) {
    const id = forms.get(found[0].toLowerCase());
    if (known.has(id)) continue;
    known.add(id);
    const rest = node.splitText(found.index);
    const after = rest.splitText(found[0].length);
    rest.replaceWith(linkTo(id, found[0]));
    return after;
  }
  return null;
}

function linkAll() {
  const known = new Set(
    [...document.querySelectorAll("a.term")].map((link) => link.dataset.term),
  );
  for (const prose of document.querySelectorAll(".lesson section:not(.check) > p.prose")) {
    // What a script writes again would lose its links, and links do not stand in links.
    if (prose.id || prose.querySelector("[id]") || prose.closest("a, button, summary")) continue;
    const walker = document.createTreeWalker(prose, NodeFilter.SHOW_TEXT, (node) =>
      node.parentElement.closest("a, code, button, sup") ? NodeFilter.FILTER_REJECT : 1,
    );
    const nodes = [];
    while (walker.nextNode()) nodes.push(walker.currentNode);
    for (let node of nodes) while (node) node = linkIn(node, known);
  }
}

// ── the card ───────────────────────────────────────────────────────────────────────────────────

const card = el("div", "term-card");
card.id = "term-card";
card.setAttribute("role", "tooltip");
card.hidden = true;
document.body.append(card);
let shown = null;
let leaving = null;

function show(link) {
  clearTimeout(leaving);
  const term = terms[link.dataset.term];
  if (!term || shown === link) return;
  hide();
  shown = link;
  card.replaceChildren(el("b", "", term.name), el("p", "", term.meaning));
  card.hidden = false;
  link.setAttribute("aria-describedby", card.id);
  const box = link.getBoundingClientRect();
  const width = card.offsetWidth;
  const left = Math.max(8, Math.min(box.left, document.documentElement.clientWidth - width - 8));
  card.style.setProperty("left", `${left + scrollX}px`);
  card.style.setProperty("top", `${box.bottom + scrollY + 6}px`);
}

function hide() {
  clearTimeout(leaving);
  shown?.removeAttribute("aria-describedby");
  shown = null;
  card.hidden = true;
}

const later = () => {
  clearTimeout(leaving);
  leaving = setTimeout(hide, 150);
};

linkAll();
for (const link of document.querySelectorAll("a.term")) {
  link.addEventListener("pointerenter", () => show(link));
  link.addEventListener("pointerleave", later);
  link.addEventListener("focus", () => show(link));
  link.addEventListener("blur", hide);
}
card.addEventListener("pointerenter", () => clearTimeout(leaving));
card.addEventListener("pointerleave", later);
document.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
