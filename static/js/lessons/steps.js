// From a query to what its head mixes, in five steps, each with its numbers.

import { unpack } from "../api.js";
import { el, setText, sum } from "../dom.js";
import { rove } from "../roving.js";
import { percent, significant, t, visible, whole } from "../texts.js";
import { did } from "./lesson.js";
import { reach, vectorBars } from "./vector-bars.js";

const SOFTMAX = 4;
const LAST = 5;

const widget = document.getElementById("steps");
const part = (name) => widget.querySelector(`[data-${name}]`);
const body = widget.querySelector("tbody");
const radios = [...widget.querySelectorAll('input[name="step"]')];
const been = new Set();
let shown = null; // {answer, pieces, keys, values, key}

const step = () => Number(radios.find((radio) => radio.checked).value);

/** Row `index` of a packed [t, d] array. */
const row = (array, index) => array.subarray(index * array.shape[1], (index + 1) * array.shape[1]);

/** The weights again, from the rotated query and keys alone: what the page shows can be redone. */
function again({ answer, keys }) {
  const scores = answer.visible.map((seen, key) =>
    seen ? answer.scale * sum(Array.from(row(keys, key), (k, j) => k * answer.q_rotated[j])) : -Infinity,
  );
  const top = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - top));
  const total = sum(powers);
  return powers.map((power) => power / total);
}

const rows = rove(body, ".key", (item) => {
  if (item && shown) lookAt(Number(item.dataset.position));
});

/** Three digits; what is smaller than can be told is zero. */
const short = (value) => (Math.abs(value) < 5e-4 ? "0" : significant(value));

function cell(text, column) {
  const node = el("td", "n", text);
  node.dataset.column = column;
  return node;
}

function buildRows() {
  const { answer, pieces, values } = shown;
  body.replaceChildren(
    ...pieces.map((piece, key) => {
      const line = el("tr");
      const head = el("th");
      head.scope = "row";
      const name = el("button", "key", visible(piece));
      name.type = "button";
      name.tabIndex = -1;
      name.dataset.position = key;
      name.setAttribute("aria-label", t("steps.key", { piece: visible(piece), position: key }));
      head.append(name);
      const seen = answer.visible[key];
      const added = Math.hypot(...row(values, key)) * answer.weights[key];
      line.append(
        head,
        cell(short(answer.dots[key]), 1),
        cell(short(answer.scaled[key]), 2),
        cell(seen ? short(answer.scaled[key]) : "−∞", 3),
        cell(percent(answer.weights[key]), 4),
        cell(seen ? short(added) : "0", 5),
      );
      line.dataset.seen = seen;
      return line;
    }),
  );
  rows.refresh();
}

/** Pictures for one key: its vectors, their products, and what its value adds. */
function lookAt(key) {
  shown.key = key;
  const { answer, keys, values, pieces } = shown;
  const q = answer.q_rotated;
  const k = row(keys, key);
  const v = row(values, key);
  const weight = answer.weights[key];
  const products = Array.from(k, (value, j) => value * q[j]);
  const most = reach(q, k);
  vectorBars(part("bars-q"), q, most);
  vectorBars(part("bars-k"), k, most);
  vectorBars(part("bars-product"), products);
  const wide = reach(v, answer.mixed);
  vectorBars(part("bars-v"), v, wide);
  vectorBars(part("bars-added"), Array.from(v, (value) => value * weight), wide);
  vectorBars(part("bars-mixed"), answer.mixed, wide);
  for (const line of body.children) {
    line.dataset.here = String(line.querySelector(".key").dataset.position === String(key));
  }
  const names = { query: visible(pieces[answer.query]), key: visible(pieces[key]) };
  setText(part("pair"), t("steps.pair", names));
  explain();
}

/** Scrolls the table alone, never the page, until the chosen row can be seen. */
function bringIntoSight() {
  const line = body.querySelector('[data-here="true"]');
  const box = widget.querySelector(".numbers");
  box.scrollTop = line.offsetTop + line.offsetHeight - box.clientHeight / 2;
}

function explain() {
  if (!shown) return;
  const { answer, key, pieces } = shown;
  const at = step();
  const dimensions = answer.q.length;
  const after = answer.visible.filter((seen) => !seen).length;
  const values = {
    key: visible(pieces[key]),
    d: dimensions,
    dot: significant(answer.dots[key]),
    scaled: significant(answer.scaled[key]),
    scale: significant(1 / answer.scale),
    n: after,
    share: percent(answer.weights[key]),
    seen: whole(answer.visible.length - after),
    error: shown.error.toExponential(0),
  };
  const masked = at === SOFTMAX && !answer.visible[key];
  setText(part("words"), masked ? t("steps.masked", values) : t(`steps.${at}`, values));
  widget.dataset.step = at;
  been.add(at);
  if (been.size === LAST) did("follow");
  part("back").disabled = at === 1;
  part("next").disabled = at === LAST;
}

function go(by) {
  const next = radios[step() - 1 + by];
  if (!next) return;
  next.checked = true;
  explain();
}

part("back").addEventListener("click", () => go(-1));
part("next").addEventListener("click", () => go(1));
for (const radio of radios) radio.addEventListener("change", explain);

/** Shows the numbers of one query of one head (the answer of the probe "attention-detail"). */
export function showSteps(answer, pieces) {
  const keys = unpack(answer.keys_rotated);
  shown = { answer, pieces, keys, values: unpack(answer.values), key: 0, error: 0 };
  const redone = again(shown);
  shown.error = Math.max(...redone.map((weight, i) => Math.abs(weight - answer.weights[i])));
  buildRows();
  const seen = answer.weights.map((weight, i) => (i === 0 ? -1 : weight)); // the first takes most
  lookAt(pieces.length > 1 && answer.query > 0 ? seen.indexOf(Math.max(...seen)) : 0);
  bringIntoSight();
}
