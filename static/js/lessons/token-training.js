// Merges learned from the reader's own text, one after the other.

import { post } from "../api.js";
import { el, setText, tableCell, tableRow } from "../dom.js";
import { t, visible, whole } from "../texts.js";
import { latest, tellIn } from "./latest.js";
import { did } from "./lesson.js";
import { stepper, tile } from "./token-tiles.js";

const find = (id) => document.getElementById(id);
const MOST_TILES = 600;
const ask = latest();
let states = [];
let learned = null;
let moved = false;
const kinds = new Map(); // pieces, each with a tint of its own, in whatever step it stands

/** A word after one more merge, from left to right. */
function merged(word, left, right) {
  const out = [];
  for (let at = 0; at < word.length; at++) {
    const pair = word[at] === left && word[at + 1] === right;
    out.push(pair ? left + right : word[at]);
    if (pair) at++;
  }
  return out;
}

/** The text after every merge: words as lists of pieces. Words that do not change are shared. */
function statesOf({ words, merges }) {
  const all = [words.map((word) => [...word])];
  for (const { left, right } of merges) {
    all.push(
      all.at(-1).map((word) => (word.includes(left) ? merged(word, left, right) : word)),
    );
  }
  return all;
}

function line(step) {
  const merge = learned.merges[step - 1];
  if (!merge) return t("train.start", { n: learned.tokens_before });
  const [left, right] = [merge.left, merge.right].map(visible);
  return t("train.step", { step, total: learned.merges.length, left, right, n: merge.count });
}

const walk = stepper(find("training-stepper"), (step) => {
  const merge = learned.merges[step - 1];
  const made = merge && merge.left + merge.right;
  const pieces = states[step].flat();
  const nodes = pieces.slice(0, MOST_TILES).map((piece) => {
    if (!kinds.has(piece)) kinds.set(piece, kinds.size);
    const node = tile({ piece }, kinds.get(piece));
    if (piece === made) node.dataset.made = "yes";
    return node;
  });
  find("training-parts").replaceChildren(...nodes);
  const told = line(step);
  setText(find("training-line"), told);
  const size = t("train.size", { n: pieces.length, before: learned.tokens_before });
  const rest = pieces.length - nodes.length;
  setText(find("training-size"), rest > 0 ? `${size} ${t("lab.more", { n: rest })}` : size);
  for (const [index, node] of [...find("training-rows").children].entries()) {
    node.toggleAttribute("data-chosen", index === step - 1);
  }
  if (moved && step === Math.min(3, learned.merges.length)) did("train");
  moved = true;
  return told;
});

function draw(answer) {
  learned = answer;
  kinds.clear();
  states = statesOf(answer);
  const rows = answer.merges.map(({ left, right, count }, index) => {
    const pieces = [left, right, left + right].map((piece) => tableCell(el("code", "", visible(piece))));
    return tableRow(el("th", "n", whole(index + 1)), [...pieces, whole(count)]);
  });
  find("training-rows").replaceChildren(...rows);
  moved = false;
  walk.begin(answer.merges.length);
  if (!answer.merges.length) setText(find("training-line"), t("train.none"));
}

find("training-go").addEventListener("click", () => {
  const text = find("training-text").value;
  const limits = find("training-merges");
  if (!text.trim()) return setText(find("training-problem"), t("lesson.empty"));
  if (!limits.reportValidity()) return;
  ask(async (signal) => {
    const body = { text, merges: Number(limits.value) };
    draw(await post("/api/v1/tokenizers/train", body, { signal }));
  }, tellIn(find("training-problem")));
});
