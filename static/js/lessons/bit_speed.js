// What fewer bits do to prefill and to decode on any device: predicted by the simulator.

import { post } from "../api.js";
import { el, setText, svg } from "../dom.js";
import { t, time, times, whole } from "../texts.js";
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
let asked = null;

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
    const row = el("tr");
    const name = el("th", "", t(`speed.${FORMS[index]}`));
    name.scope = "row";
    row.append(name);
    for (const [phase, key] of PHASES) {
      const most = Math.max(...answers.map((one) => one[key].value));
      const value = answer[key].value;
      const cell = el("td", "bar-cell");
      cell.append(bar(value / most, phase));
      row.append(
        cell,
        el("td", "n", time(1000 * value)),
        el("td", "n", t("speed.times", { times: times(plain[key].value / value) })),
      );
    }
    return row;
  });
  body.replaceChildren(...rows);
}

async function ask() {
  asked?.abort();
  const mine = (asked = new AbortController());
  const question = {
    model: field("model").value,
    hardware: field("hardware").value,
    prompt_tokens: 2 ** Number(field("prompt").value),
    output_tokens: 16,
  };
  setText(root.querySelector('output[for="speed-prompt"]'), whole(question.prompt_tokens));
  try {
    const answers = await Promise.all(
      FORMS.map((weights) => post("/api/v1/simulate", { ...question, weights }, { signal: mine.signal })),
    );
    draw(answers);
    setText(status, "");
  } catch (error) {
    if (error.name === "AbortError") return;
    setText(status, error.message);
  }
}

for (const id of ["model", "hardware", "prompt"]) {
  field(id).addEventListener(id === "prompt" ? "input" : "change", async () => {
    await ask();
    did("halves");
  });
}
ask();
