// RoPE by hand: a real query and a real key of the prompt, turned to any two positions.

import { post, unpack } from "../api.js";
import { setText, svg } from "../dom.js";
import { sentences, significant, t, visible } from "../texts.js";
import { latest, tellIn } from "./latest.js";
import { did } from "./lesson.js";
import { facts, onReady } from "./ready.js";
import { rotated, scoreAt } from "./vector-rope.js";
import { currentTokens, idsOf, onTokens } from "./vector-tokens.js";

const LONGEST = 64;
const LEFT = 62; // of the curve: room for a score in the large letters of a phone
const RIGHT = 510;
const at = (id) => document.getElementById(id);
const inputs = Object.fromEntries(
  ["query", "key", "layer", "head", "m", "n", "shift", "pair"].map((name) => [name, at(`dial-${name}`)]),
);
const ask = latest();
let seen = null; // {q, k, pairs, scale, own: {m, n, score, query, key}}
let last = null; // {distance, shift, score}

function options(select, labels, chosen) {
  select.replaceChildren(
    ...labels.map((label, value) => new Option(label, value, value === chosen, value === chosen)),
  );
}

function offer(tokens) {
  const names = tokens.slice(0, 65).map(({ piece }, place) => `${visible(piece)} (${place})`);
  // A word that comes twice shows it best: same row, other place.
  const ids = idsOf(tokens).slice(0, names.length);
  const again = ids.findIndex((id, place) => ids.indexOf(id) < place && /\p{L}/u.test(names[place]));
  options(inputs.query, names, again > 0 ? again : names.length - 1);
  options(inputs.key, names, again > 0 ? ids.indexOf(ids[again]) : Math.min(1, names.length - 1));
  look();
}

function offerLayers() {
  const known = facts();
  if (!known || inputs.layer.options.length) return;
  const numbered = (n) => Array.from({ length: n }, (_, i) => String(i));
  options(inputs.layer, numbered(known.layers), 0);
  options(inputs.head, numbered(known.heads), 0);
}

function look() {
  offerLayers();
  const tokens = currentTokens();
  if (!tokens || tokens.length < 2 || !inputs.layer.options.length) return;
  const layer = Number(inputs.layer.value);
  const text = { token_ids: idsOf(tokens), layer };
  const [m, n] = [Number(inputs.query.value), Number(inputs.key.value)];
  ask(async (signal) => {
    const asked = { ...text, head: Number(inputs.head.value), query: m };
    const detail = await post("/api/v1/probes/attention-detail", asked, { signal });
    const turns = { ...text, position: m };
    const { pairs } = await post("/api/v1/probes/rotation", turns, { signal });
    const keys = unpack(detail.keys);
    const width = detail.q.length;
    seen = {
      q: detail.q,
      k: [...keys.subarray(n * width, (n + 1) * width)],
      pairs,
      scale: detail.scale,
      own: { m, n, score: detail.scaled[n], query: tokens[m].piece, key: tokens[n].piece },
    };
    inputs.pair.max = pairs.length - 1;
    inputs.m.value = m;
    inputs.n.value = n;
    inputs.shift.value = 0;
    last = null;
    paint();
  }, tellIn(at("dial-problem")));
}

function paint() {
  if (!seen) return;
  const shift = Number(inputs.shift.value);
  const [m, n] = [Number(inputs.m.value) + shift, Number(inputs.n.value) + shift];
  setText(at("dial-m-value"), String(m));
  setText(at("dial-n-value"), String(n));
  setText(at("dial-shift-value"), String(shift));
  setText(at("dial-pair-value"), String(Number(inputs.pair.value) + 1));
  drawClock(m, n);
  const score = scoreAt(seen, m, n);
  drawCurve(m - n, score);
  tell(m, n, shift, score);
}

function drawClock(m, n) {
  const { dimensions, step, wavelength } = seen.pairs[Number(inputs.pair.value)];
  const hands = [
    ["hand query", seen.q, m, "q"],
    ["hand key", seen.k, n, "k"],
  ];
  const marks = [svg("circle", { r: 100, class: "face" })];
  const longest = Math.max(...hands.map(([, v]) => Math.hypot(v[dimensions[0]], v[dimensions[1]]))) || 1;
  for (const [name, vector, position, letter] of hands) {
    const [x, y] = rotated(vector, dimensions, position * step);
    const [px, py] = [(x / longest) * 92, (-y / longest) * 92];
    const label = svg("text", { x: px * 1.12, y: py * 1.12 + 4, class: name });
    label.textContent = letter;
    marks.push(svg("line", { x1: 0, y1: 0, x2: px, y2: py, class: name }), label);
  }
  at("dial-picture").replaceChildren(...marks);
  const told = {
    pair: Number(inputs.pair.value) + 1,
    pairs: seen.pairs.length,
    step: t("dial.turns", { degrees: significant((Math.abs(step) * 180) / Math.PI) }),
    wave: Number.isFinite(wavelength ?? Infinity) ? significant(wavelength) : "∞",
  };
  const words = {
    query: t("dial.query", { piece: visible(seen.own.query), m }),
    key: t("dial.key", { piece: visible(seen.own.key), n }),
  };
  setText(at("dial-caption"), sentences([t("dial.caption", told), t("dial.hands", words)]));
}

function drawCurve(distance, score) {
  const values = Array.from({ length: 2 * LONGEST + 1 }, (_, i) => scoreAt(seen, i - LONGEST, 0));
  const [low, high] = [Math.min(...values, 0), Math.max(...values, 0)];
  const x = (d) => LEFT + ((d + LONGEST) / (2 * LONGEST)) * (RIGHT - LEFT);
  const y = (v) => 200 - ((v - low) / (high - low || 1)) * 180;
  const line = values.map((v, i) => `${i ? "L" : "M"}${x(i - LONGEST).toFixed(1)} ${y(v).toFixed(1)}`);
  const texts = [
    [x(-LONGEST), 218, `−${LONGEST}`, "start"],
    [x(0), 218, "0", "middle"],
    [x(LONGEST), 218, String(LONGEST), "end"],
    [x(0), 236, t("dial.axisDistance"), "middle"],
    [LEFT - 6, y(high) + 8, significant(high), "end"],
    [LEFT - 6, y(low), significant(low), "end"],
  ].map(([tx, ty, text, anchor]) => {
    const node = svg("text", { x: tx, y: ty, "text-anchor": anchor });
    node.textContent = text;
    return node;
  });
  const inside = Math.max(-LONGEST, Math.min(LONGEST, distance));
  at("dial-curve").replaceChildren(
    svg("line", { x1: x(-LONGEST), x2: x(LONGEST), y1: y(0), y2: y(0), class: "axis" }),
    svg("path", { d: line.join(""), class: "line" }),
    svg("circle", { cx: x(inside), cy: y(score), r: 5, class: "here" }),
    ...texts,
  );
}

function tell(m, n, shift, score) {
  const distance = m - n;
  const parts = [t("dial.score", { m, n, score: significant(score) })];
  if (last && last.distance === distance && last.shift !== shift) {
    const error = Math.abs(score - last.score) / Math.max(1e-12, Math.abs(last.score));
    const digits = Math.min(15, Math.floor(-Math.log10(error || 1e-15)));
    parts.push(t("dial.same", { distance, digits }));
    did("distance");
  } else if (last && last.distance !== distance) {
    parts.push(t("dial.moved", { distance, before: significant(last.score), was: last.distance }));
  }
  if (!last || last.distance !== distance) last = { distance, shift, score };
  setText(at("dial-score"), sentences(parts));
  const own = scoreAt(seen, seen.own.m, seen.own.n);
  const told = { score: significant(seen.own.score), dial: significant(own) };
  setText(at("dial-engine"), t("dial.engine", told));
}

for (const name of ["query", "key", "layer", "head"]) inputs[name].addEventListener("change", look);
for (const name of ["m", "n", "shift", "pair"]) inputs[name].addEventListener("input", paint);
onTokens(offer);
onReady((ready) => ready && look());
