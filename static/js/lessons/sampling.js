// One run of the model, then its scores are kept: every setting reshapes the same distribution here
// in the browser, and draws come from what is left.

import { post, unpack } from "../api.js";
import { setText } from "../dom.js";
import { percent, significant, t, visible, whole } from "../texts.js";
import { did, guessed, onGuess, say, tellTruth } from "./lesson.js";
import { isReady, onReady } from "./ready.js";
import { mountAnswers } from "./sampling-answers.js";
import { drawBars, drawOrder, tally, unnamed } from "./sampling-bars.js";
import { drawPicture } from "./sampling-picture.js";
import { mountSettings } from "./sampling-settings.js";
import { chance, draw, entropy, rank, shape } from "./sampling-shape.js";

const NAMED = 50;
const PLAIN = { temperature: 1, topK: 0, topP: 1, minP: 0 };

const section = document.getElementById("shaping");
const part = (name) => section.querySelector(`[data-${name}]`);
const prompt = document.getElementById("sampling-prompt");
const measure = document.getElementById("sampling-measure");
const [look, one, thousand, clear] = ["look", "one", "thousand", "clear"].map(part);

let known = null; // {text, ranked, own, names, basis}: the scores after the reader's text
let shaped = null;
let draws = [];
let asking = null;

// ── the one run of the model ───────────────────────────────────────────────────────────────────

async function ask(text, signal) {
  const { tokens } = await post("/api/v1/tokenize", { text }, { signal });
  const ids = tokens.map((token) => token.id);
  const body = { token_ids: ids, position: ids.length - 1, k: NAMED };
  const answer = await post("/api/v1/probes/next-token", body, { signal });
  const ranked = rank(unpack(answer.logits));
  const names = new Map(answer.top.map(({ piece }, at) => [at, piece]));
  return { text, ranked, own: shape(ranked, PLAIN), names };
}

/** The scores after the prompt as it stands; null where none came, which is then said. */
async function scores() {
  const text = prompt.value;
  if (known?.text === text) return known;
  asking?.abort();
  const mine = (asking = new AbortController());
  line(t("sampling.running"));
  look.disabled = measure.disabled = true;
  try {
    known = await ask(text, mine.signal);
    line(t("sampling.ran", { n: known.ranked.ids.length }));
    if (!part("stage").hidden) reshape(settings.values());
    return known;
  } catch (error) {
    if (error.name !== "AbortError") line(error.message, true);
    return null;
  } finally {
    if (asking === mine) {
      asking = null;
      allow();
    }
  }
}

/** Names for ranks beyond those that came with the scores; without them their ids are shown. */
async function nameDraws() {
  const mine = known;
  const missing = unnamed(draws, (at) => mine.names.has(at));
  if (!missing.length) return;
  const ids = missing.map((at) => mine.ranked.ids[at]);
  try {
    const { tokens } = await post("/api/v1/detokenize", { ids });
    tokens.forEach(({ piece }, i) => mine.names.set(missing[i], piece));
  } catch (error) {
    line(error.message, true);
  }
  if (mine === known) paintDraws();
}

const nameOf = (at) => known.names.get(at) ?? `#${known.ranked.ids[at]}`;

// ── what the reader does ───────────────────────────────────────────────────────────────────────

async function begin() {
  if (!prompt.value.trim()) return line(t("sampling.empty"), true);
  if (!(await scores())) return;
  open();
  part("stage").querySelector("input").focus();
}

/** Scores are there: so are the settings and the picture. */
function open() {
  part("stage").hidden = false;
  reshape(settings.values());
}

function reshape(values) {
  if (!known) return;
  shaped = shape(known.ranked, values);
  draws = [];
  paint();
  noticeCuts(values);
}

function drawMore(count) {
  draws = draws.length + count > 100_000 ? draw(shaped, count) : [...draws, ...draw(shaped, count)];
  paint();
  nameDraws();
  say(part("drawn").textContent);
  const { temperature } = settings.values();
  const others = draws.filter((at) => at > 0).length;
  if (draws.length < 1000) return;
  if (temperature === 1 && others) did("draw");
  if (!others) did("freeze");
}

const seen = new Set();

/** The two ways of cutting a hot distribution, each alone. */
function noticeCuts({ temperature, topK, topP, minP }) {
  if (temperature < 1.5 || topK) return;
  if (topP === 0.9 && !minP) seen.add("topP");
  if (minP === 0.1 && topP === 1) seen.add("minP");
  if (seen.size === 2) did("cut");
}

// ── what is shown ──────────────────────────────────────────────────────────────────────────────

function line(text, wrong = false) {
  const node = part("line");
  setText(node, text);
  node.classList.toggle("problem", wrong);
  if (wrong) say(text);
}

function stage(name, count, mass, bits) {
  const row = section.querySelector(`[data-row="${name}"]`);
  const [tokens, share, entropyCell, effective] = row.querySelectorAll("td");
  setText(tokens, whole(count));
  setText(share, percent(mass));
  setText(entropyCell, significant(bits));
  setText(effective, significant(2 ** bits));
}

function paintStages() {
  const { own } = known;
  const all = own.weights.length;
  stage("own", all, 1, entropy(own, all));
  for (const [name, count] of Object.entries(shaped.left)) {
    stage(name, count, shaped.sums[count - 1] / shaped.total, entropy(shaped, count));
  }
}

function paintDraws() {
  const names = Array.from({ length: NAMED }, (_, at) => nameOf(at));
  drawBars(part("bars"), { names, own: known.own, shaped, draws });
  drawOrder(part("order"), draws, nameOf);
  part("order-box").hidden = draws.length === 0;
  const others = draws.filter((at) => at > 0).length;
  const values = { n: draws.length, others, kinds: tally(draws).size };
  setText(part("drawn"), draws.length ? t("sampling.drawn", values) : "");
}

function paint() {
  const first = chance(shaped, 0);
  setText(part("miss"), percent(1 - first));
  setText(part("first"), t("sampling.first", { piece: visible(nameOf(0)), p: percent(first) }));
  drawPicture(part("picture"), known.own, shaped);
  paintStages();
  paintDraws();
  clear.disabled = draws.length === 0;
}

const settings = mountSettings(section, reshape);
new ResizeObserver(() => shaped && drawPicture(part("picture"), known.own, shaped)).observe(section);

mountAnswers(settings.values);
look.addEventListener("click", begin);
one.addEventListener("click", () => drawMore(1));
thousand.addEventListener("click", () => drawMore(1000));
clear.addEventListener("click", () => {
  draws = [];
  paint();
});

// ── the guess, and the engine that comes and goes ──────────────────────────────────────────────

async function settle() {
  if (!prompt.value.trim()) return line(t("sampling.empty"), true);
  const found = await scores();
  if (!found) return tellTruth(part("line").textContent, -1);
  const drawn = draw(found.own, 1000);
  const others = drawn.filter((at) => at > 0).length;
  const likeliest = { piece: visible(nameOf(0)), p: percent(chance(found.own, 0)) };
  const right = others === 0 ? 0 : others < 500 ? 1 : 2;
  tellTruth(t("sampling.truth", { n: drawn.length, others, ...likeliest }), right);
  if (part("stage").hidden) open();
}

function allow() {
  look.disabled = !isReady();
  measure.disabled = guessed() === null || !isReady();
}

let wasReady = true;

onReady((ready) => {
  allow();
  if (!ready) line(t("sampling.waits"));
  else if (!wasReady) line(t("sampling.ready"));
  wasReady = ready;
});
onGuess(allow);
measure.addEventListener("click", settle);
