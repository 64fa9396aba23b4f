// What fewer bits do to prefill and to decode on any device: predicted by the simulator.

import { post } from "../api.js";
import { el, setText, svg, tableRow } from "../dom.js";
import { t, time, times, whole } from "../texts.js";
import { latest, tellIn } from "./latest.js";
import { did } from "./lesson.js";

// Weights that are only stored in few bits, and int8 that is multiplied as int8.
const FORMS = ["bf16", "int8-g128", "int8", "int4-g128"];
const PHASES = [
  ["prefill", "ttft"],
  ["decode", "itl"],
];

const root = document.getElementById("speed");
const status = root.querySelector(".speed-status");
const body = root.querySelector("tbody");
const field = (id) => document.getElementById(`speed-${id}`);
const ask = latest();

function bar(share, phase) {
  const picture = svg("svg", {
    class: `hbar ${phase}`,
    viewBox: "0 0 100 10",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  picture.append(svg("rect", { x: 0, y: 0, height: 10, width: Math.max(0.4, 100 * share).toFixed(2) }));
  return picture;
}

function draw(answers) {
  const plain = answers[0];
  const rows = answers.map((answer, index) => {
    const cells = PHASES.flatMap(([phase, key]) => {
      const most = Math.max(...answers.map((one) => one[key].value));
      const value = answer[key].value;
      const cell = el("td", "bar-cell");
      cell.append(bar(value / most, phase));
      return [cell, time(1000 * value), t("speed.times", { times: times(plain[key].value / value) })];
    });
    return tableRow(t(`speed.${FORMS[index]}`), cells);
  });
  body.replaceChildren(...rows);
}

function compare(then = () => {}) {
  const question = {
    model: field("model").value,
    hardware: field("hardware").value,
    prompt_tokens: 2 ** Number(field("prompt").value),
    output_tokens: 16,
  };
  setText(root.querySelector('output[for="speed-prompt"]'), whole(question.prompt_tokens));
  ask(async (signal) => {
    const answers = await Promise.all(
      FORMS.map((weights) => post("/api/v1/simulate", { ...question, weights }, { signal })),
    );
    draw(answers);
    then();
  }, tellIn(status));
}

for (const id of ["model", "hardware", "prompt"]) {
  field(id).addEventListener(id === "prompt" ? "input" : "change", () => compare(() => did("halves")));
}
compare();
