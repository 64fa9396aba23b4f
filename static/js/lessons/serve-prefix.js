// One beginning, two questions: the second finds the beginning's blocks in the cache.

import { el, setText } from "../dom.js";
import { ttft } from "../run.js";
import { errorText } from "../status.js";
import { sentences, t, time, whole } from "../texts.js";
import { needEngine } from "./buttons.js";
import { generate } from "./engine.js";
import { did, say } from "./lesson.js";

const MOST_CELLS = 64;
const section = document.getElementById("prefix");
const part = (name) => section.querySelector(`[data-${name}]`);
const button = document.getElementById("prefix-go");
const value = (id) => document.getElementById(id).value;
let running = false;
const update = needEngine([button], part("wait"), () => !running);

/** A prompt as its blocks: found in the cache, or computed. */
function row(name, run) {
  const size = run.steps.at(-1)?.kv_block_tokens ?? 16;
  const { prompt_tokens: total } = run.accepted;
  const found = run.done.usage.cached_tokens;
  const node = el("div", "prefix-row");
  const told = t("prefix.row", {
    name,
    found: whole(found),
    computed: whole(total - found),
    time: time(ttft(run)),
  });
  const blocks = el("div", "prefix-blocks");
  blocks.setAttribute("aria-hidden", "true");
  const count = Math.min(MOST_CELLS, Math.ceil(total / size));
  for (let i = 0; i < count; i++) {
    blocks.append(el("span", (i + 1) * size <= found ? "swatch cached" : "swatch prefill"));
  }
  node.append(el("p", "", told), blocks);
  return node;
}

async function run() {
  running = true;
  update();
  part("result").hidden = true;
  part("rows").replaceChildren();
  for (const name of ["problem", "found"]) setText(part(name), "");
  const runs = [];
  for (const question of ["prefix-first", "prefix-second"]) {
    setText(part("now"), t("prefix.now", { n: runs.length + 1 }));
    const request = {
      prompt: `${value("prefix-prompt")}\n\n${value(question)}`,
      max_tokens: 8,
      temperature: 0,
      ignore_eos: true,
      prefix_cache: true,
    };
    const done = await generate(request);
    if (done.error) {
      setText(part("problem"), errorText(done.error));
      break;
    }
    runs.push(done);
    part("result").hidden = false;
    part("rows").append(row(value(question), done));
  }
  setText(part("now"), "");
  running = false;
  update();
  if (runs.length === 2) finish(runs);
}

function finish([first, second]) {
  const [before, found] = [first, second].map(({ done }) => done.usage.cached_tokens);
  const values = { n: whole(found), first: time(ttft(first)), second: time(ttft(second)) };
  const sentence = sentences([
    t(found ? "prefix.hit" : "prefix.none", values),
    before ? t("prefix.known") : "",
  ]);
  setText(part("found"), sentence);
  say(sentence);
  if (found) did("prefix");
}

button.addEventListener("click", run);
