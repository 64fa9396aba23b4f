// Speculative decoding on the engine: the same prompt plain and with drafts. A group is a step: its
// drafts, ticked or struck through, and then the token that the model chose itself.

import { el, setText, tableRow } from "../dom.js";
import { errorText } from "../status.js";
import { significant, t, time, times, visible, whole } from "../texts.js";
import { needEngine } from "./buttons.js";
import { generate } from "./engine.js";
import { did, say } from "./lesson.js";

const section = document.getElementById("drafts");
const part = (name) => section.querySelector(`[data-${name}]`);
const button = document.getElementById("drafts-go");
let running = false;
const update = needEngine([button], part("wait"), () => !running);

/** A step's tokens: drafts that were right, drafts that were not, and its own. */
function group(run, index) {
  const step = run.steps[index];
  const given = run.tokens.filter((token) => token.step === index);
  const drafts = step.drafts ?? [];
  const accepted = Math.min(step.accepted ?? 0, given.length);
  const node = el("li", "group");
  const words = [];
  drafts.forEach((piece, i) => {
    const right = i < accepted;
    const name = t(right ? "drafts.right" : "drafts.not", { piece: visible(piece) });
    const token = el("span", right ? "draft right" : "draft not");
    token.append(el(right ? "span" : "s", "", visible(piece)), el("span", "hear", name));
    node.append(token);
    words.push(name);
  });
  for (const token of given.slice(accepted)) {
    node.append(el("span", index ? "own decode" : "own prefill", visible(token.piece)));
  }
  return node;
}

function paint(run) {
  part("groups").replaceChildren(...run.steps.map((_, index) => group(run, index)));
}

/** Milliseconds from the first token to the last. */
const decoding = (run) => run.tokens.at(-1).time_ms - run.tokens[0].time_ms;

function finish(plain, drafted, method) {
  const { usage } = drafted.done;
  const same = plain.tokens.filter((token, i) => token.id === drafted.tokens[i]?.id).length;
  const ratio = decoding(plain) / decoding(drafted);
  const steps = drafted.steps.length - 1;
  const rows = [
    ["drafts.row.accepted", `${whole(usage.accepted_tokens)} / ${whole(usage.drafted_tokens)}`],
    ["drafts.row.steps", `${whole(steps)} / ${whole(plain.steps.length - 1)}`],
    ["drafts.row.perStep", significant((drafted.tokens.length - 1) / Math.max(1, steps))],
    ["drafts.row.time", `${time(decoding(drafted))} / ${time(decoding(plain))}`],
    ["drafts.row.same", `${same} / ${plain.tokens.length}`],
  ];
  part("rows").replaceChildren(
    ...rows.map(([key, value]) => tableRow(t(key), [value])),
  );
  const key = !usage.drafted_tokens ? "none" : ratio > 1 ? "faster" : "slower";
  const sentence = t(`drafts.found.${key}`, { ratio: times(ratio > 1 ? ratio : 1 / ratio), method });
  setText(part("found"), sentence);
  say(sentence);
  if (usage.drafted_tokens) did("drafts");
}

async function run() {
  running = true;
  update();
  setText(part("problem"), "");
  setText(part("found"), "");
  part("result").hidden = false;
  const choice = document.getElementById("drafts-method");
  const request = {
    prompt: document.getElementById("drafts-prompt").value,
    max_tokens: Number(document.getElementById("drafts-length").value),
    temperature: 0,
    ignore_eos: true,
  };
  const speculation = { method: choice.value, draft_tokens: 4 };
  setText(part("now"), t("drafts.now.plain"));
  const plain = await generate(request);
  setText(part("now"), t("drafts.now.drafts"));
  const onEvent = (event, current) => event.type === "token" && paint(current);
  const drafted = plain.error ? plain : await generate({ ...request, speculation }, { onEvent });
  setText(part("now"), "");
  running = false;
  update();
  if (drafted.error) return setText(part("problem"), errorText(drafted.error));
  paint(drafted);
  finish(plain, drafted, choice.selectedOptions[0].textContent);
}

button.addEventListener("click", run);
