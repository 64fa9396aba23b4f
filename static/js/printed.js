// On paper the form is left out: what the run was asked for stands there in words.

import { setText } from "./dom.js";

const list = document.querySelector("[data-printed]");
let told = null;

/** The run's own settings, which the form may not show any more. */
export function mountPrinted() {
  return ({ live: run }) => {
    if (!run?.accepted || told === run) return;
    told = run;
    const { request, accepted } = run;
    const asked = { ...request, lane: accepted.lane?.name ?? accepted.dtype, seed: accepted.seed };
    asked.prompt ??= request.messages[0].content;
    asked.stop = request.stop?.[0] ?? "";
    asked.speculation = request.speculation?.method ?? "";
    for (const place of list.querySelectorAll("dd")) {
      const value = String(asked[place.dataset.name]);
      setText(place, value);
      place.parentElement.hidden = value === place.dataset.off;
    }
    list.hidden = false;
  };
}
