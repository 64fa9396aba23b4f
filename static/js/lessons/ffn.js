// The feed-forward network of one layer at one token: its largest inner numbers, gate times up.

import { el, setText, tableRow } from "../dom.js";
import { percent, significant, t, visible, whole } from "../texts.js";
import { asker } from "./inside.js";
import { mountPositions, onPosition } from "./layers.js";
import { did } from "./lesson.js";
import { facts } from "./ready.js";

const TOP = 8;
const SEEN = 3;

const widget = document.getElementById("ffn");
const part = (name) => widget.querySelector(`[data-${name}]`);
const slider = part("layer");
const ask = asker(part("problem"));
const seen = new Set();
let position = 0;
let pieces = [];

const number = (value) => (value === null ? "—" : significant(value));

function row({ index, value, gate, up }, most) {
  const picture = el("td", "unit-bar");
  const bar = el("span");
  bar.dataset.sign = value < 0 ? "minus" : "plus";
  bar.style.setProperty("--w", Math.abs(value) / most);
  picture.append(bar);
  return tableRow(el("th", "n", whole(index)), [...[gate, up, value].map(number), picture]);
}

async function look() {
  const layer = Number(slider.value);
  const words = t("lens.layer", { layer });
  setText(part("which"), words);
  slider.setAttribute("aria-valuetext", words);
  const answer = await ask("feed-forward", { layer, position, k: TOP });
  if (!answer) return;
  const most = Math.max(...answer.top.map(({ value }) => Math.abs(value)));
  part("gate").hidden = answer.top[0].gate === null; // two matrices: nothing gates
  part("rows").replaceChildren(...answer.top.map((unit) => row(unit, most)));
  setText(part("facts"), t("ffn.facts", {
    n: answer.top.length,
    width: whole(answer.width),
    share: percent(answer.top_share),
    piece: visible(pieces[position]),
    added: significant(answer.output_norm),
  }));
}

function shapes() {
  const { hidden, intermediate: width } = facts();
  for (const name of ["gate", "up"]) {
    setText(part(`shape-${name}`), t("ffn.shape", { rows: whole(width), columns: whole(hidden) }));
  }
  setText(part("shape-down"), t("ffn.shape", { rows: whole(hidden), columns: whole(width) }));
}

slider.addEventListener("input", () => {
  seen.add(slider.value);
  if (seen.size >= SEEN) did("units");
  look();
});
mountPositions(part("position"));
onPosition((chosen, text) => {
  const layers = text.answer.attention.length;
  if (Number(slider.max) !== layers - 1) {
    slider.max = layers - 1;
    slider.value = Math.floor(layers / 2);
  }
  position = chosen;
  pieces = text.pieces;
  shapes();
  look();
});
