// One head large: a row for each token that looks, a column for each token that is looked at.

import { unpack } from "../api.js";
import { setText } from "../dom.js";
import { percent, t, visible, whole } from "../texts.js";
import { choose, chosen, onChosen } from "./attention.js";
import { asker } from "./inside.js";
import { ink, onTheme, shade } from "./shades.js";

const LABEL = 88; // pixels for the tokens' names, where there is room for them
const NAMED = 12; // pixels a row needs for its name
const WIDEST = 640;

const widget = document.getElementById("head");
const part = (name) => widget.querySelector(`[data-${name}]`);
const board = part("board");
const canvas = board.querySelector("canvas");
const context = canvas.getContext("2d");
const readout = part("readout");
const ask = asker(part("problem"));

let pieces = [];
let weights = null;
let bitmap = null;
let cursor = null; // {query, key} under the pointer or the keys
let shown = "";

const weightAt = (query, key) => weights[query * pieces.length + key];

function geometry() {
  const outer = Math.min(WIDEST, board.clientWidth);
  const named = (outer - LABEL) / pieces.length >= NAMED;
  const start = named ? LABEL : 0;
  return { outer, start, named, cell: (outer - start) / pieces.length };
}

/** The weights as a picture of one pixel each; the future, which the mask hides, stays empty. */
function makeBitmap() {
  const size = pieces.length;
  bitmap = new OffscreenCanvas(size, size);
  const painter = bitmap.getContext("2d");
  const image = painter.createImageData(size, size);
  const color = ink();
  for (let i = 0; i < size * size; i += 1) image.data.set([...color, 255 * shade(weights[i])], 4 * i);
  painter.putImageData(image, 0, 0);
}

/** The page's colours, as a canvas wants them. */
const colors = {};

function mix() {
  for (const name of ["ink", "soft", "line"]) colors[name] = `rgb(${ink(`--${name}`).join(" ")})`;
}

function drawNames({ start, cell }) {
  context.font = `12px ${getComputedStyle(board).fontFamily}`;
  context.textBaseline = "middle";
  pieces.forEach((piece, i) => {
    const name = visible(piece).slice(0, 12);
    context.fillStyle = i === chosen.query ? colors.ink : colors.soft;
    context.textAlign = "right";
    context.fillText(name, start - 6, start + (i + 0.5) * cell, start - 8);
    context.save();
    context.translate(start + (i + 0.5) * cell, start - 6);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(name, 0, 0, start - 8);
    context.restore();
  });
}

function draw() {
  if (!weights || !board.clientWidth) return;
  const g = geometry();
  const ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.height = Math.round(g.outer * ratio);
  canvas.style.setProperty("--side", `${g.outer}px`);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, g.outer, g.outer);
  const inner = g.outer - g.start;
  context.fillStyle = colors.line;
  context.beginPath(); // what the mask hides
  for (let i = 0; i < pieces.length; i += 1) {
    context.rect(g.start + (i + 1) * g.cell, g.start + i * g.cell, inner - (i + 1) * g.cell, g.cell);
  }
  context.globalAlpha = 0.45;
  context.fill();
  context.globalAlpha = 1;
  context.imageSmoothingEnabled = g.cell < 1;
  context.drawImage(bitmap, g.start, g.start, inner, inner);
  if (g.named) drawNames(g);
  context.strokeStyle = colors.ink;
  context.lineWidth = 1;
  const thick = Math.max(2, g.cell);
  context.strokeRect(g.start + 0.5, g.start + chosen.query * g.cell, inner - 1, thick);
  if (cursor) {
    context.lineWidth = 2;
    const side = Math.max(5, g.cell);
    const x = g.start + (cursor.key + 0.5) * g.cell - side / 2;
    context.strokeRect(x, g.start + (cursor.query + 0.5) * g.cell - side / 2, side, side);
  }
}

function name(position) {
  return t("head.token", { piece: visible(pieces[position]), position });
}

function read({ query, key }) {
  const names = { query: name(query), key: name(key) };
  if (key > query) return t("head.hidden", names);
  return t("head.weight", { ...names, share: percent(weightAt(query, key)) });
}

function move(place) {
  cursor = place;
  setText(readout, cursor ? read(cursor) : "");
  draw();
}

function placeOf(event) {
  const { start, cell } = geometry();
  const box = canvas.getBoundingClientRect();
  const key = Math.floor((event.clientX - box.left - start) / cell);
  const query = Math.floor((event.clientY - box.top - start) / cell);
  const inside = [key, query].every((value) => value >= 0 && value < pieces.length);
  return inside ? { query, key } : null;
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function onKey(event) {
  if (!weights) return;
  const at = cursor ?? { query: chosen.query, key: chosen.query };
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    choose({ query: at.query });
    return;
  }
  const step = STEPS[event.key];
  if (!step) return;
  event.preventDefault();
  const clamp = (value) => Math.min(pieces.length - 1, Math.max(0, value));
  move({ query: clamp(at.query + step[0]), key: clamp(at.key + step[1]) });
}

canvas.addEventListener("pointermove", (event) => weights && move(placeOf(event)));
canvas.addEventListener("pointerleave", () => move(null));
canvas.addEventListener("click", (event) => {
  const place = weights && placeOf(event);
  if (place) choose({ query: place.query });
});
board.addEventListener("keydown", onKey);
board.addEventListener("blur", () => move(null));
new ResizeObserver(draw).observe(board);
mix();
onTheme(() => {
  mix();
  if (weights) makeBitmap();
  draw();
});

onChosen(async ({ layer, head }, text) => {
  const wanted = `${layer}.${head}`;
  if (wanted === shown && text.pieces === pieces) {
    draw();
    return;
  }
  setText(part("title"), t("head.title", { layer, head }));
  const began = performance.now();
  const answer = await ask("attention", { layer, head });
  if (!answer) return;
  shown = wanted;
  pieces = text.pieces;
  weights = unpack(answer.weights);
  cursor = null;
  makeBitmap();
  draw();
  board.dataset.ms = Math.round(performance.now() - began);
  setText(
    part("facts"),
    t("head.facts", { kv: answer.kv_head, n: whole(pieces.length), heads: text.answer.heads.length }),
  );
});
