// After a run, the prediction for other hardware asks about the same work.

import { ttft, usualGap } from "./run.js";
import { laneOf } from "./store.js";

const form = document.getElementById("elsewhere-form");
const field = (name) => form.elements.namedItem(name);
const set = (name, value) => {
  field(name).value = value ?? "";
};

/** Sets a choice to what ran here, where it is on offer and the reader has not chosen. */
function follow(name, value) {
  const select = field(name);
  const offered = [...select.options].some((option) => option.value === value);
  if (offered && select.dataset.chosen !== "yes") select.value = value;
}

export function mountElsewhere() {
  let told = null;
  form.addEventListener("change", ({ target }) => {
    target.dataset.chosen = "yes";
  });

  return (store) => {
    const { live: run, facts } = store;
    if (!run?.done || told === run || !run.tokens.length) return;
    told = run;
    const ran = {
      model: facts?.catalogue_model ?? "",
      weights: laneOf(run)?.weight_format ?? "",
      prompt_tokens: run.accepted.prompt_tokens,
      output_tokens: run.tokens.length,
    };
    for (const [name, value] of Object.entries(ran)) set(`here_${name}`, value);
    follow("model", ran.model);
    follow("weights", ran.weights);
    set("prompt_tokens", ran.prompt_tokens);
    set("output_tokens", Math.min(ran.output_tokens, field("output_tokens").max));
    set("here_ttft_ms", ttft(run));
    set("here_itl_ms", usualGap(run));
    htmx.trigger(form, "run-done");
  };
}
