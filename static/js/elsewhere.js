// After a run, the prediction for other hardware asks about the same lengths.

import { median } from "./dom.js";
import { gaps, ttft } from "./run.js";

export function mountElsewhere() {
  const form = document.getElementById("elsewhere-form");
  let told = null;

  return ({ run }) => {
    if (!run?.done || told === run || !run.tokens.length) return;
    told = run;
    const set = (name, value) => {
      form.elements.namedItem(name).value = value ?? "";
    };
    set("prompt_tokens", run.accepted.prompt_tokens);
    set("output_tokens", Math.min(run.tokens.length, form.elements.namedItem("output_tokens").max));
    set("here_ttft_ms", ttft(run));
    set("here_itl_ms", median(gaps(run)));
    htmx.trigger(form, "run-done");
  };
}
