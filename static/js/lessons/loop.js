// The loop, turned by hand: each press takes one token, puts it at the end of the text, and runs
// the model over all of it for the next.

import { post, unpack } from "../api.js";
import { setText } from "../dom.js";
import { phases } from "../run.js";
import { errorText } from "../status.js";
import { percent, t, time, visible } from "../texts.js";
import { generate } from "./engine.js";
import { did, guessed, onGuess, say, tellTruth } from "./lesson.js";
import { mountList } from "./loop-list.js";
import { drawRows, drawText, drawWays } from "./loop-text.js";
import { hasTwoWays, idsTo, newTree, sinceOther, take } from "./loop-tree.js";
import { isReady, onReady } from "./ready.js";

const CANDIDATES = 10;
const AT_A_TIME = 8;
const LONGEST = 768; // tokens that a look inside the model may have

const section = document.getElementById("stepper");
const part = (name) => section.querySelector(`[data-${name}]`);
const prompt = document.getElementById("loop-prompt");
const kind = document.getElementById("loop-kind");
const measure = document.getElementById("loop-measure");
const [begin, step, back, on] = ["begin", "step", "back", "on"].map(part);

let tree = null;
let running = null; // the AbortController of the pass that is on
let presses = 0;

const isEnd = (at) => Boolean(at.choice?.special);

// ── one pass of the model ──────────────────────────────────────────────────────────────────────

async function tokenize(text, signal) {
  const body = kind.value === "chat" ? { messages: [{ role: "user", content: text }] } : { text };
  return (await post("/api/v1/tokenize", body, { signal })).tokens;
}

/** The candidates after a text: `top` of them, and the others together. */
async function look(ids, signal) {
  const body = { token_ids: ids, position: ids.length - 1, k: CANDIDATES };
  const answer = await post("/api/v1/probes/next-token", body, { signal });
  const named = { ids: answer.top.map((token) => token.id) };
  const { tokens } = await post("/api/v1/detokenize", named, { signal });
  const top = answer.top.map(({ id, piece, logprob }, rank) => {
    const { special, bytes } = tokens[rank];
    return { id, piece, p: Math.exp(logprob), rank, special, bytes };
  });
  const possible = unpack(answer.logits).filter(Number.isFinite).length;
  const rest = Math.max(0, 1 - top.reduce((total, { p }) => total + p, 0));
  return { top, rest, numOthers: possible - top.length };
}

/** Runs the model where the reader is, unless it ran there before; false if that failed. */
async function run() {
  const { at } = tree;
  const ids = idsTo(tree, at);
  if (at.next || isEnd(at) || ids.length > LONGEST) return true;
  const mine = (running = new AbortController());
  line(t("loop.running", { n: ids.length }));
  paint();
  const from = performance.now();
  try {
    at.next = await look(ids, mine.signal);
    line(t("loop.ran", { n: ids.length, time: time(performance.now() - from) }));
    return true;
  } catch (error) {
    if (error.name !== "AbortError") line(error.message, true);
    return false;
  } finally {
    if (running === mine) running = null;
  }
}

// ── what the reader does ───────────────────────────────────────────────────────────────────────

async function start() {
  const text = prompt.value;
  if (!text.trim()) return line(t("loop.empty"), true);
  running?.abort();
  const mine = (running = new AbortController());
  try {
    tree = newTree(await tokenize(text, mine.signal));
  } catch (error) {
    if (error.name !== "AbortError") line(error.message, true);
    return;
  } finally {
    if (running === mine) running = null;
  }
  presses = 0;
  part("stage").hidden = false;
  if (await run()) heard(null);
  paint();
  part("list").focus();
}

/** Takes a candidate, and looks what comes after it. */
async function press(index) {
  const choice = tree?.at.next?.top[index];
  if (!choice || running) return false;
  take(tree, choice);
  presses += 1;
  const well = await run();
  paint();
  if (well) heard(choice);
  notice();
  return well && !isEnd(tree.at);
}

async function goOn() {
  for (let i = 0; i < AT_A_TIME && (await press(i ? 0 : list.selected())); i++);
}

async function go(place) {
  if (!tree || running || !place) return;
  tree.at = place;
  await run();
  paint();
}

function notice() {
  if (presses >= 5) did("step");
  if (sinceOther(tree) >= 4) did("other");
  if (hasTwoWays(tree.root, 4)) did("ways");
  if (kind.value === "chat" && isEnd(tree.at)) did("end");
}

// ── what is shown ──────────────────────────────────────────────────────────────────────────────

function line(text, wrong = false) {
  const node = part("line");
  setText(node, text);
  node.classList.toggle("problem", wrong);
  if (wrong) say(text);
}

/** Marks the lines of the code that are being done. */
function highlight(names) {
  for (const node of section.querySelectorAll("[data-does]")) {
    node.toggleAttribute("data-now", names.includes(node.dataset.does));
  }
}

function heard(choice) {
  const next = tree.at.next?.top[0];
  if (!next) return;
  const values = { next: visible(next.piece), p: percent(next.p) };
  say(choice ? t("loop.taken", { ...values, taken: visible(choice.piece) }) : t("loop.first", values));
}

function paint() {
  const busy = running !== null;
  const over = isEnd(tree.at);
  drawText(part("text"), tree);
  drawRows(part("rows"), tree);
  drawWays(part("ways"), tree, go);
  if (!busy) list.show(tree.at.next);
  list.busy(busy);
  const taken = tree.at.parent ? ["append"] : [];
  highlight(busy ? [...taken, "run"] : over ? [...taken, "end"] : ["choose"]);
  step.disabled = on.disabled = busy || !tree.at.next;
  back.disabled = busy || !tree.at.parent;
  if (busy) return;
  if (over) {
    line(t("loop.ended", { piece: tree.at.choice.piece }));
    say(part("line").textContent);
  } else if (idsTo(tree, tree.at).length > LONGEST) {
    line(t(tree.at.parent ? "loop.full" : "loop.long", { max: LONGEST }), true);
  }
}

const list = mountList(part("list"), part("others"), {
  onTake: press,
  onBack: () => go(tree?.at.parent),
});

/** An example that was not touched makes room for the one that goes with the other way of asking. */
function fitExample() {
  const examples = [...kind.options].map((option) => option.dataset.example);
  if (examples.includes(prompt.value)) prompt.value = kind.selectedOptions[0].dataset.example;
}

kind.addEventListener("change", fitExample);
begin.addEventListener("click", start);
step.addEventListener("click", () => press(list.selected()));
back.addEventListener("click", () => go(tree?.at.parent));
on.addEventListener("click", goOn);

// ── the engine comes and goes ──────────────────────────────────────────────────────────────────

let wasReady = true;

onReady((ready) => {
  begin.disabled = !ready;
  if (!ready) line(t("loop.waits"));
  else if (!wasReady) line(t("loop.ready"));
  wasReady = ready;
  allowMeasuring();
});

// ── the guess ──────────────────────────────────────────────────────────────────────────────────

async function count() {
  measure.disabled = true;
  const asked = { prompt: prompt.value.trim() || prompt.defaultValue, max_tokens: 12, ignore_eos: true };
  const done = await generate(asked);
  allowMeasuring();
  if (done.error) return tellTruth(errorText(done.error), -1);
  const { prefill, decode } = phases(done);
  const steps = prefill.length + decode.length + done.dropped;
  const words = done.done.text.trim().split(/\s+/).length;
  const tokens = done.tokens.length;
  const right = steps >= tokens ? 2 : steps === words ? 1 : 0;
  tellTruth(t("loop.truth", { steps, tokens, words, text: done.done.text.trim() }), right);
}

function allowMeasuring() {
  measure.disabled = guessed() === null || !isReady();
}

onGuess(allowMeasuring);
measure.addEventListener("click", count);
