// The logit lens: what the model would say after every layer, at some positions of the text.

import { el, median, setText } from "../dom.js";
import { percent, significant, t, visible } from "../texts.js";
import { gridKeys } from "./grid-keys.js";
import { asker, onText, text } from "./inside.js";
import { choosePosition, mountPositions, onPosition } from "./layers.js";
import { did, onGuess, tellTruth } from "./lesson.js";
import { isReady, onReady } from "./ready.js";

const COLUMN = 84; // pixels a column needs
const MOST = 12;
const TOP = 5;
const THIRDS = 3;

const widget = document.getElementById("lens");
const part = (name) => widget.querySelector(`[data-${name}]`);
const grid = part("grid");
const readout = part("readout");
const run = part("run");
const measure = document.getElementById("measure");
const ask = asker(part("problem"));
let columns = []; // {position, rows, settled} as they come
let hasGuess = false;
let walking = 0;
let chosen = 0;

/** The first row from which on the likeliest token stays the one that the whole model says. */
function settledRow(rows) {
  const final = rows.at(-1).top[0].id;
  let row = rows.length - 1;
  while (row > 0 && rows[row - 1].top[0].id === final) row -= 1;
  return row;
}

const layerCount = () => text().answer.attention.length;
const layerName = (layer) => (layer < 0 ? t("lens.embedding") : t("lens.layer", { layer }));

function skeleton(positions, layers) {
  const head = el("div", "lens-row");
  head.setAttribute("role", "row");
  head.append(el("div", "lens-layer"));
  head.firstChild.setAttribute("role", "columnheader");
  setText(head.firstChild, t("lens.after"));
  for (const position of positions) {
    const cell = el("div", "lens-token", visible(text().pieces[position]));
    cell.setAttribute("role", "columnheader");
    head.append(cell);
  }
  const lines = Array.from({ length: layers + 1 }, (_, row) => {
    const line = el("div", "lens-row");
    line.setAttribute("role", "row");
    const name = el("div", "lens-layer", row ? String(row - 1) : t("lens.embeddingShort"));
    name.setAttribute("role", "rowheader");
    line.append(
      name,
      ...positions.map((_position, column) => {
        const cell = el("div", "lens-cell");
        cell.setAttribute("role", "gridcell");
        cell.tabIndex = -1;
        Object.assign(cell.dataset, { row, column });
        return cell;
      }),
    );
    return line;
  });
  grid.style.setProperty("--columns", positions.length);
  Object.assign(grid.dataset, { rows: layers + 1, columns: positions.length });
  grid.replaceChildren(head, ...lines);
}

function sentence(column, row) {
  const { position, rows } = columns[column];
  const { layer, top } = rows[row];
  return t("lens.cell", {
    where: layerName(layer),
    token: visible(text().pieces[position]),
    piece: visible(top[0].piece),
    share: percent(Math.exp(top[0].logprob)),
  });
}

function fill(column) {
  const { rows, settled } = columns[column];
  rows.forEach(({ top }, row) => {
    const cell = keys.at(row, column);
    const share = el("span", "lens-share");
    share.style.setProperty("--w", Math.exp(top[0].logprob));
    cell.replaceChildren(el("span", "piece", visible(top[0].piece)), share);
    cell.dataset.settled = row < settled ? "no" : row === settled ? "first" : "yes";
    cell.setAttribute("aria-label", sentence(column, row));
  });
}

function show(cell) {
  const [row, column] = [Number(cell.dataset.row), Number(cell.dataset.column)];
  if (!columns[column]) return;
  const { rows, position } = columns[column];
  const { top, entropy } = rows[row];
  setText(readout, sentence(column, row));
  const others = top.map(({ piece, logprob }) => `${visible(piece)} ${percent(Math.exp(logprob))}`);
  setText(part("others"), t("lens.others", { list: others.join("  "), entropy: significant(entropy) }));
  return position;
}

function pick(cell) {
  const position = show(cell);
  if (position === undefined) return;
  choosePosition(position);
  if (cell.dataset.settled === "first") did("decided");
}

const keys = gridKeys(grid, { onFocus: show, onPick: pick });

/** Asks position by position, up to the one at `end`; a newer walk ends an older one. */
async function walk(end) {
  const mine = ++walking;
  const room = Math.floor((widget.clientWidth - COLUMN) / COLUMN);
  const count = Math.min(MOST, Math.max(3, room), text().ids.length);
  const first = Math.max(0, end + 1 - count);
  const positions = Array.from({ length: count }, (_, i) => first + i);
  columns = [];
  skeleton(positions, layerCount());
  setText(part("status"), t("lesson.running"));
  for (const [column, position] of positions.entries()) {
    const answer = await ask("logit-lens", { position, k: TOP });
    if (mine !== walking) return null;
    if (!answer) break;
    columns.push({ position, rows: answer.rows, settled: settledRow(answer.rows) });
    fill(column);
  }
  setText(part("status"), "");
  const last = keys.at(layerCount(), columns.length - 1);
  if (last) keys.stop(last);
  return columns.length === count ? columns : null;
}

async function measureDepth() {
  measure.disabled = true;
  const done = await walk(text().ids.length - 1);
  enable();
  if (!done) return;
  const layers = layerCount();
  const depth = median(done.map(({ settled }) => settled)); // layers passed: row 0 is none
  const right = Math.min(THIRDS - 1, Math.floor(((depth - 0.5) / layers) * THIRDS));
  tellTruth(
    t("lens.truth", { n: done.length, depth: Number.isInteger(depth) ? depth : significant(depth), layers }),
    Math.max(0, right),
  );
}

function enable() {
  const can = isReady() && text() !== null;
  run.disabled = !can;
  measure.disabled = !(can && hasGuess);
}

run.addEventListener("click", () => walk(chosen));
measure.addEventListener("click", measureDepth);
onGuess(() => {
  hasGuess = true;
  enable();
});
onReady(enable);
mountPositions(part("position"));
onPosition((position) => {
  chosen = position;
});
onText(() => {
  walking += 1;
  columns = [];
  grid.replaceChildren();
  for (const node of [readout, part("others"), part("status")]) setText(node, "");
  enable();
});
