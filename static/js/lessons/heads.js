// All heads of all layers at once: a small map of each, its weights on the reader's own text.

import { unpack } from "../api.js";
import { el, setText } from "../dom.js";
import { percent, t, whole } from "../texts.js";
import { choose, chosen, HABITS, habitOf, onChosen } from "./attention.js";
import { gridKeys } from "./grid-keys.js";
import { asker, onText } from "./inside.js";
import { did } from "./lesson.js";
import { ink, onTheme, shade } from "./shades.js";

const widget = document.getElementById("heads");
const part = (name) => widget.querySelector(`[data-${name}]`);
const grid = part("grid");
const readout = part("readout");
const ask = asker(part("problem"));
let heads = [];
let maps = null;
let picked = false;
const opened = new Set();

const headOf = (cell) => heads[Number(cell.dataset.index)];

/** "Layer 3, head 2: 71% of its weight on the token before." */
function sentence(head) {
  const habit = habitOf(head);
  const values = { layer: head.layer, head: head.head };
  if (habit === "spread") {
    return t("heads.spread", { ...values, share: percent(head.first ?? 0) });
  }
  return t(`heads.${habit}`, { ...values, share: percent(head[habit]) });
}

function pick(cell) {
  const head = headOf(cell);
  picked = true;
  choose({ layer: head.layer, head: head.head });
  setText(readout, sentence(head));
  opened.add(habitOf(head));
  if (opened.has("first") && opened.has("previous")) did("two-habits");
}

const keys = gridKeys(grid, { onFocus: (cell) => setText(readout, sentence(headOf(cell))), onPick: pick });

/** Layers stand in columns where that is the longer way, so that the grid lies flat. */
function place(head, layers, perLayer) {
  return layers >= perLayer ? [head.head, head.layer] : [head.layer, head.head];
}

function build(text) {
  heads = text.answer.heads;
  const layers = 1 + Math.max(...heads.map(({ layer }) => layer));
  const perLayer = heads.length / layers;
  const [rows, columns] = layers >= perLayer ? [perLayer, layers] : [layers, perLayer];
  grid.dataset.rows = rows;
  grid.dataset.columns = columns;
  grid.style.setProperty("--columns", columns);
  const cells = heads.map((head, index) => {
    const [row, column] = place(head, layers, perLayer);
    const cell = el("div", "head-cell");
    cell.setAttribute("role", "gridcell");
    cell.tabIndex = -1;
    Object.assign(cell.dataset, { row, column, index, habit: habitOf(head) });
    cell.setAttribute("aria-label", sentence(head));
    cell.append(el("canvas"));
    return cell;
  });
  grid.replaceChildren(
    ...Array.from({ length: rows }, (_, row) => {
      const line = el("div", "head-row");
      line.setAttribute("role", "row");
      line.append(...cells.filter((cell) => Number(cell.dataset.row) === row));
      return line;
    }),
  );
  setText(part("axis"), t(layers >= perLayer ? "heads.axis" : "heads.axisDown", { layers, heads: perLayer }));
  for (const habit of [...HABITS, "spread"]) {
    const n = heads.filter((head) => habitOf(head) === habit).length;
    setText(widget.querySelector(`[data-count="${habit}"]`), whole(n));
  }
  filter();
}

function draw() {
  if (!maps) return;
  const size = maps.shape[2];
  const color = ink();
  for (const cell of grid.querySelectorAll(".head-cell")) {
    const canvas = cell.firstChild;
    const from = Number(cell.dataset.index) * size * size;
    canvas.width = canvas.height = size;
    const context = canvas.getContext("2d");
    const image = context.createImageData(size, size);
    for (let i = 0; i < size * size; i += 1) {
      image.data.set([...color, 255 * shade(maps[from + i])], 4 * i);
    }
    context.putImageData(image, 0, 0);
  }
}

function mark() {
  for (const cell of grid.querySelectorAll(".head-cell")) {
    const head = headOf(cell);
    const here = head.layer === chosen.layer && head.head === chosen.head;
    cell.setAttribute("aria-selected", String(here));
    if (here && grid.querySelector('[tabindex="0"]') === null) keys.stop(cell);
    if (here && !picked) setText(readout, sentence(head));
  }
}

function filter() {
  grid.dataset.only = widget.querySelector('input[name="habit"]:checked').value;
}

widget.addEventListener("change", filter);
onChosen(mark);
onText(async (text) => {
  picked = false;
  maps = null;
  build(text);
  mark();
  const answer = await ask("attention-maps");
  if (!answer) return;
  maps = unpack(answer.maps);
  draw();
});
onTheme(draw);
