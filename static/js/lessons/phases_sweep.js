// TTFT against the prompt's length and ITL against the context's, measured one after the other.

import { el, median, setText } from "../dom.js";
import { gaps, ttft } from "../run.js";
import { errorText } from "../status.js";
import { store } from "../store.js";
import { t, times, whole } from "../texts.js";
import { did } from "./lesson.js";
import { onReady } from "./ready.js";
import { runSized } from "./sized.js";

const LENGTHS = [2, 8, 32, 128, 512, 2048];
const ANSWER = 9; // tokens: eight gaps give a median
const button = document.getElementById("sweep-run");
const status = document.getElementById("sweep-status");
const form = document.getElementById("sweep-form");
let ready = false;
let busy = false;

function paint() {
  button.disabled = !ready || busy;
}

/** The form's query is what was measured; the server draws it. */
function show(points) {
  const fields = points.flatMap(({ prompt, context, first, gap }) => [
    ["ttft", `${prompt}:${first}`],
    ["itl", `${context}:${gap}`],
  ]);
  form.replaceChildren(
    ...fields.map(([name, value]) => Object.assign(el("input"), { type: "hidden", name, value })),
  );
  htmx.trigger(form, "measured");
}

function conclude(points) {
  const [first, last] = [points[0], points.at(-1)];
  const words = t("sweep.words", {
    prompt: times(last.prompt / first.prompt),
    ttft: times(last.first / first.first),
    itl: times(last.gap / first.gap),
  });
  setText(document.getElementById("sweep-words"), words);
}

async function measure(text) {
  const points = [];
  const most = (store.facts?.max_context ?? Infinity) - ANSWER;
  const lengths = LENGTHS.filter((length) => length < most);
  await runSized(text, lengths[0], ANSWER); // the first run after a pause is slower than the rest
  for (const length of lengths) {
    setText(status, t("sweep.running", { tokens: whole(length), n: points.length + 1, total: lengths.length }));
    const run = await runSized(text, length, ANSWER);
    if (run.error) return setText(status, errorText({ ...run.error, context: store.facts?.max_context }));
    const prompt = run.accepted.prompt_tokens;
    const gap = median(gaps(run));
    points.push({ prompt, context: prompt + ANSWER / 2, first: ttft(run), gap });
    show(points);
  }
  setText(status, "");
  conclude(points);
  did("sweep");
}

button.addEventListener("click", async () => {
  const text = document.getElementById("prompt").value;
  if (!text) return setText(status, t("error.empty"));
  busy = true;
  paint();
  await measure(text);
  busy = false;
  paint();
});

onReady((now) => {
  ready = now;
  paint();
});
