// The model without its mask, without RoPE, or with the article's scale: run, not imagined.

import { setText } from "../dom.js";
import { t, times, visible } from "../texts.js";
import { showComparison } from "./compare.js";
import { asker, onText, tell, text } from "./inside.js";
import { did, onGuess, tellTruth } from "./lesson.js";
import { isReady, onReady } from "./ready.js";

const TOKENS = 8;
const TRIED = 2;

const widget = document.getElementById("without");
const part = (name) => widget.querySelector(`[data-${name}]`);
const run = part("run");
const ask = asker(part("problem"));
const tried = new Set();

async function compare() {
  const name = widget.querySelector('input[name="part"]:checked').value;
  tell(part("status"), t("lesson.running"));
  run.disabled = true;
  const answer = await ask("comparison", { ablations: [name], k: 5, max_tokens: TOKENS });
  run.disabled = !isReady();
  setText(part("status"), "");
  if (!answer) return;
  const same = showComparison(part("result"), answer, t(`without.${name}`));
  const told = { piece: visible(answer.ablated.top[0].piece) };
  tell(part("status"), t(same ? "without.same" : "without.other", told));
  tried.add(name);
  if (tried.size >= TRIED) did("take-out");
}

run.addEventListener("click", compare);

// ── the guess: the article's scale ─────────────────────────────────────────────────────────────

const measure = document.getElementById("measure");
const guessProblem = document.getElementById("guess-problem");
const askForGuess = asker(guessProblem);
let hasGuess = false;

const EVEN = 1;
const SHARP = 2;
const NOTHING = 0;
const NOISE = 1.02; // as much is no difference

/** How many tokens a head looks at in effect: e to the mean entropy of its weights. */
function breadth(heads) {
  return Math.exp(heads.reduce((total, head) => total + head.entropy, 0) / heads.length);
}

async function measureScale() {
  measure.disabled = true;
  setText(guessProblem, t("lesson.running"));
  const other = await askForGuess("overview", { ablations: ["hidden-scale"] });
  if (other) {
    const [before, after] = [breadth(text().answer.heads), breadth(other.heads)];
    const right = after > before * NOISE ? EVEN : before > after * NOISE ? SHARP : NOTHING;
    const values = { before: times(before), after: times(after), n: other.heads.length };
    tellTruth(t("scale.truth", values), right);
  }
  enable();
}

function enable() {
  measure.disabled = !(hasGuess && isReady() && text());
  run.disabled = !(isReady() && text());
}

measure.addEventListener("click", measureScale);
onGuess(() => {
  hasGuess = true;
  enable();
});
onReady(enable);
onText(() => {
  part("result").replaceChildren();
  enable();
});
