// All claims at a glance: a mark for each verdict, their count, and one press that measures what is
// left, one after the other.

import { setText } from "./dom.js";

const count = document.getElementById("verdict-count");
const all = document.getElementById("all");

const verdictOf = (claim) => claim.querySelector(".verdict")?.dataset.verdict ?? null;

function paint() {
  const found = { right: 0, caveat: 0, wrong: 0 };
  for (const claim of document.querySelectorAll(".claim")) {
    const verdict = verdictOf(claim);
    const chip = document.querySelector(`[data-chip="${claim.id}"]`);
    chip.dataset.verdict = verdict ?? "";
    setText(chip.querySelector(".hear"), claim.querySelector(".verdict b")?.textContent ?? "");
    if (verdict) found[verdict] += 1;
  }
  const n = found.right + found.caveat + found.wrong;
  let text = count.dataset.count.replace("{n}", n);
  for (const [name, value] of Object.entries(found)) text = text.replace(`{${name}}`, value);
  if (n) setText(count, text);
  all.hidden = !left().length;
}

/** The buttons of claims that have no verdict yet. */
const left = () =>
  [...document.querySelectorAll(".claim")]
    .filter((claim) => !verdictOf(claim))
    .map((claim) => claim.querySelector("button[hx-post]"))
    .filter(Boolean);

const measured = (button) =>
  new Promise((done) => {
    button.addEventListener("htmx:afterRequest", () => setTimeout(done), { once: true });
    button.click();
  });

all.addEventListener("click", async () => {
  all.disabled = true;
  for (const button of left()) await measured(button);
  all.disabled = false;
  paint();
});

document.body.addEventListener("htmx:afterSettle", ({ target }) => {
  if (target.matches(".finding")) paint();
});
paint();
