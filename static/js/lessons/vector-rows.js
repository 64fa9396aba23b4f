// The row of one token out of the embedding table, drawn number by number; and the lesson's guess.

import { post, Problem } from "../api.js";
import { el, setText, svg } from "../dom.js";
import { bytes, significant, t, visible, whole } from "../texts.js";
import { did, onGuess, tellTruth } from "./lesson.js";
import { onReady } from "./ready.js";
import { currentTokens, idsOf, onTokens, tokenize } from "./vector-tokens.js";

const WIDTH = 1152;
const HEIGHT = 120;
const FIRST = 12;

const at = (id) => document.getElementById(id);
const prompt = at("rows-prompt");
const list = at("rows-tokens");
const index = at("rows-index");
const seen = new Set();
let row = null;

function fail(node, error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof Problem)) throw error;
  setText(node, error.message);
}

async function read() {
  if (!prompt.value.trim()) return setText(at("rows-problem"), t("lesson.empty"));
  try {
    await tokenize(prompt.value);
    setText(at("rows-problem"), "");
  } catch (error) {
    fail(at("rows-problem"), error);
  }
}

function listTokens(tokens) {
  list.replaceChildren(
    ...tokens.slice(0, 64).map(({ piece }, place) => {
      const chip = el("button", "chip", visible(piece));
      chip.type = "button";
      chip.setAttribute("role", "option");
      chip.setAttribute("aria-selected", "false");
      chip.setAttribute("aria-label", t("rows.which", { piece: visible(piece), n: String(place) }));
      chip.tabIndex = place ? -1 : 0;
      return chip;
    }),
  );
  if (tokens.length) look(0);
}

async function look(place, byReader = false) {
  const chips = [...list.children];
  chips.forEach((chip, i) => {
    chip.setAttribute("aria-selected", i === place ? "true" : "false");
    chip.tabIndex = i === place ? 0 : -1;
  });
  const token = currentTokens()[place];
  try {
    const answer = await post("/api/v1/probes/embeddings", { token_ids: [token.id] });
    if (chips[place]?.getAttribute("aria-selected") !== "true") return;
    draw(answer);
    setText(at("rows-problem"), "");
  } catch (error) {
    fail(at("rows-problem"), error);
    return;
  }
  if (!byReader) return;
  seen.add(token.id);
  if (seen.size >= 2) did("rows");
}

function draw(answer) {
  [row] = answer.rows;
  const [rows, columns] = answer.table_shape;
  const facts = {
    id: row.id,
    rows,
    columns,
    rowBytes: bytes(answer.row_bytes),
    tableBytes: bytes(answer.table_bytes),
    format: answer.stored_as,
    norm: significant(row.norm),
    flops: answer.flops,
  };
  setText(at("rows-caption"), t("rows.facts", facts));
  const largest = Math.max(...row.values.map(Math.abs));
  const step = WIDTH / columns;
  const path = row.values
    .map((value, i) => `M${((i + 0.5) * step).toFixed(1)} 60v${(-value / largest) * 56}`)
    .join("");
  at("rows-picture").replaceChildren(
    svg("line", { x1: 0, x2: WIDTH, y1: 60, y2: 60, class: "axis" }),
    svg("path", { d: path, class: "numbers" }),
    svg("rect", { class: "cursor", y: 0, height: HEIGHT, width: Math.max(3, step), x: 0 }),
  );
  index.max = columns - 1;
  point();
  const head = el("tr");
  const body = el("tr");
  row.values.slice(0, FIRST).forEach((value, i) => {
    head.append(el("th", "n", whole(i)));
    body.append(el("td", "n", value.toFixed(4)));
  });
  at("rows-head").replaceChildren(head);
  at("rows-body").replaceChildren(body);
  setText(at("rows-first"), t("rows.first"));
}

function point() {
  if (!row) return;
  const n = Number(index.value);
  at("rows-picture").querySelector(".cursor").setAttribute("x", (n * WIDTH) / row.values.length);
  setText(at("rows-value"), t("rows.hover", { n, value: row.values[n].toFixed(4) }));
}

// ── the guess: the same word at two places ─────────────────────────────────────────────────────

const difference = (a, b) => {
  let total = 0;
  for (let i = 0; i < a.length; i += 1) total += Math.abs(a[i] - b[i]);
  return total / a.length;
};

function twice(tokens) {
  const places = new Map();
  for (const [place, { id, piece }] of tokens.entries()) {
    if (places.has(id) && /\p{L}/u.test(piece)) return [places.get(id), place];
    if (!places.has(id)) places.set(id, place);
  }
  return null;
}

async function measure() {
  const tokens = currentTokens();
  const pair = tokens && twice(tokens);
  if (!pair) return setText(at("guess-problem"), t("guess.needs"));
  const [a, b] = pair;
  const question = { token_ids: idsOf(tokens), layer: 0, head: 0 };
  try {
    const one = await post("/api/v1/probes/attention-detail", { ...question, query: a });
    const two = await post("/api/v1/probes/attention-detail", { ...question, query: b });
    const before = difference(one.q, two.q);
    const after = difference(one.q_rotated, two.q_rotated);
    setText(at("guess-problem"), "");
    const told = { before: significant(before), after: significant(after) };
    const words = { piece: visible(tokens[a].piece), a: String(a), b: String(b) };
    // The row is the same and the query before the turn: what is left is the turn itself.
    tellTruth(t("guess.truth", { ...words, ...told }), before < after / 100 ? 2 : 1);
  } catch (error) {
    fail(at("guess-problem"), error);
  }
}

list.addEventListener("click", ({ target }) => {
  const place = [...list.children].indexOf(target.closest(".chip"));
  if (place >= 0) look(place, true);
});
list.addEventListener("keydown", (event) => {
  const chips = [...list.children];
  const here = chips.indexOf(document.activeElement);
  const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: chips.length - 1 }[event.key];
  if (to === undefined || !chips[to]) return;
  event.preventDefault();
  chips[to].focus();
  look(to, true);
});
index.addEventListener("input", point);
at("rows-picture").addEventListener("pointermove", ({ offsetX, currentTarget }) => {
  if (!row) return;
  index.value = Math.floor((offsetX / currentTarget.clientWidth) * row.values.length);
  point();
});
let typed = null;
prompt.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(read, 200);
});
onTokens(listTokens);
onGuess(() => {
  at("guess-measure").disabled = false;
});
at("guess-measure").addEventListener("click", measure);
onReady((ready) => ready && read());
