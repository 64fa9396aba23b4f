// One token that looks back: the text with a bar under each token, and how its weights come about.

import { el, setText } from "../dom.js";
import { rove } from "../roving.js";
import { percent, t, visible } from "../texts.js";
import { choose, onChosen } from "./attention.js";
import { asker } from "./inside.js";
import { shade } from "./shades.js";
import { showSteps } from "./steps.js";

const widget = document.getElementById("query");
const part = (name) => widget.querySelector(`[data-${name}]`);
const tokens = part("tokens");
const ask = asker(part("problem"));
let pieces = [];

const said = rove(tokens, ".look", (item) => {
  setText(part("readout"), item ? item.getAttribute("aria-label") : "");
});

tokens.addEventListener("click", ({ target }) => {
  const item = target.closest(".look");
  if (item) choose({ query: Number(item.dataset.position) });
});

function build(text) {
  pieces = text.pieces;
  tokens.replaceChildren(
    ...pieces.map((piece, position) => {
      const item = el("button", "look");
      item.type = "button";
      item.tabIndex = -1;
      item.dataset.position = position;
      item.append(el("span", "piece", visible(piece)), el("span", "weight"));
      return item;
    }),
  );
  said.refresh();
}

function paint(answer) {
  [...tokens.children].forEach((item, position) => {
    const weight = answer.weights[position];
    const seen = answer.visible[position];
    item.dataset.state = position === answer.query ? "query" : seen ? "seen" : "hidden";
    item.setAttribute("aria-pressed", String(position === answer.query));
    item.querySelector(".weight").style.setProperty("--w", seen ? shade(weight) : 0);
    const values = { piece: visible(pieces[position]), position, share: percent(weight) };
    item.setAttribute("aria-label", t(seen ? "query.weight" : "query.hidden", values));
  });
}

onChosen(async ({ layer, head, query }, text) => {
  if (text.pieces !== pieces) build(text);
  const answer = await ask("attention-detail", { layer, head, query });
  if (!answer) return;
  const values = { piece: visible(pieces[query]), position: query, layer, head };
  setText(part("title"), t("query.title", values));
  paint(answer);
  showSteps(answer, pieces);
});
