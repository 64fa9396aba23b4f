// The model without one of its layers: run, beside the model as it is.

import { setText } from "../dom.js";
import { t, visible } from "../texts.js";
import { showComparison } from "./compare.js";
import { asker, onText, tell, text } from "./inside.js";
import { did } from "./lesson.js";
import { isReady, onReady } from "./ready.js";

const TOKENS = 8;
const TRIED = 2;

const widget = document.getElementById("skip");
const part = (name) => widget.querySelector(`[data-${name}]`);
const slider = part("layer");
const run = part("run");
const ask = asker(part("problem"));
const tried = new Set();

function sayLayer() {
  const words = t("lens.layer", { layer: Number(slider.value) });
  setText(part("which"), words);
  slider.setAttribute("aria-valuetext", words);
}

async function compare() {
  const layer = Number(slider.value);
  tell(part("status"), t("lesson.running"));
  run.disabled = true;
  const answer = await ask("comparison", { ablations: [`layer:${layer}`], k: 5, max_tokens: TOKENS });
  enable();
  setText(part("status"), "");
  if (!answer) return;
  const same = showComparison(part("result"), answer, t("skip.without", { layer }));
  const told = { piece: visible(answer.ablated.top[0].piece) };
  tell(part("status"), t(same ? "skip.same" : "skip.other", told));
  tried.add(layer);
  if (tried.size >= TRIED) did("skip");
}

function enable() {
  run.disabled = !(isReady() && text());
}

slider.addEventListener("input", sayLayer);
run.addEventListener("click", compare);
onReady(enable);
onText(({ answer }) => {
  const layers = answer.attention.length;
  if (Number(slider.max) !== layers - 1) {
    slider.max = layers - 1;
    slider.value = Math.floor(layers / 2);
  }
  part("result").replaceChildren();
  sayLayer();
  enable();
});
