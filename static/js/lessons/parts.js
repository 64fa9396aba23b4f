// Where parameters, FLOPs and bytes are: the server counts, this says the slider's value.

import { setText } from "../dom.js";
import { t } from "../texts.js";
import { did } from "./lesson.js";

const widget = document.getElementById("parts");
const slider = widget.querySelector('[name="power"]');
const output = widget.querySelector("output");
const choice = widget.querySelector('[name="model"]');

function sayTokens() {
  const words = t("parts.tokens", { n: 2 ** Number(slider.value) });
  setText(output, words);
  slider.setAttribute("aria-valuetext", words);
}

const first = choice.value;
let other = false;

slider.addEventListener("input", sayTokens);
choice.addEventListener("change", () => {
  other ||= choice.value !== first;
});
widget.addEventListener("htmx:afterSettle", () => {
  if (other) did("compare");
});
sayTokens();
