// The same article in many languages: tokens, what they do to TTFT and cost, measured here.

import { get, post } from "../api.js";
import { el, setText, tableCell, tableRow } from "../dom.js";
import { errorText } from "../status.js";
import { significant, t, time, times, whole } from "../texts.js";
import { generate } from "./engine.js";
import { latest, tellIn } from "./latest.js";
import { did } from "./lesson.js";
import { onReady } from "./ready.js";
import { bar, settled } from "./token-tiles.js";

const find = (id) => document.getElementById(id);
const ARTICLES = 30;
const DASH = "—";
const NAMES = new Intl.DisplayNames(document.documentElement.lang, { type: "language" });
const article = find("languages-article");
const choice = find("languages-tokenizer");
const button = find("effect-measure");
const ask = latest();
const predict = latest();
let languages = [];
let predicted = new Map(); // prompt tokens → seconds
let price = null;
const measured = new Map(); // tag → {tokens, ms}, of the article that is shown

for (let number = 1; number <= ARTICLES; number++) {
  article.append(new Option(t("lang.article", { n: number }), number));
}
article.append(new Option(t("lang.all"), 0));

/** A language by its own name, and by the reader's name for it. */
function named(language) {
  const name = el("span", "language");
  const own = el("span", "", language.own_name);
  own.lang = language.tag;
  const readers = NAMES.of(language.tag);
  name.append(own);
  if (readers !== language.own_name) name.append(" ", el("span", "soft", readers));
  return name;
}

// ── tokens ─────────────────────────────────────────────────────────────────────────────────────

function draw() {
  const chosen = choice.value;
  const most = Math.max(...languages.map((language) => language.relative[chosen]));
  const rows = languages.map((language) => {
    const picture = bar(language.relative[chosen] / most, "bar-fill");
    const counts = Object.keys(language.relative).map((name) => {
      const cell = el("span", "", t("lang.times", { n: times(language.relative[name]) }));
      cell.title = t("lang.tokens", { n: language.counts[name] });
      return cell;
    });
    const line = tableRow(named(language), [tableCell(picture), ...counts]);
    Object.keys(language.relative).forEach((name, index) => {
      line.children[index + 2].toggleAttribute("data-chosen", name === chosen);
    });
    return line;
  });
  find("languages-rows").replaceChildren(...rows);
  for (const head of document.querySelectorAll("#languages th[data-for]")) {
    head.toggleAttribute("data-chosen", head.dataset.for === chosen);
  }
  drawEffect();
}

function drawTexts() {
  const nodes = languages.map((language) => {
    const text = el("p", "prose small", language.text);
    text.lang = language.tag;
    text.dir = language.direction;
    return text;
  });
  find("languages-texts").replaceChildren(...nodes);
}

function load() {
  ask(async (signal) => {
    const path = `/api/v1/tokenizers/languages?article=${article.value}`;
    languages = (await get(path, { signal })).languages;
    measured.clear();
    setText(find("effect-line"), "");
    draw();
    drawTexts();
    allow();
    forecast();
  }, tellIn(find("languages-problem")));
}

// ── what it does ───────────────────────────────────────────────────────────────────────────────

const length = find("effect-tokens");
const promptOf = (language) =>
  Math.max(1, Math.round(Number(length.value) * language.relative[choice.value]));

function drawEffect() {
  const english = measured.get("en");
  const rows = languages.map((language) => {
    const tokens = promptOf(language);
    const seconds = predicted.get(tokens);
    const found = measured.get(language.tag);
    const dollars = price === null ? null : significant(price * language.relative[choice.value]);
    const cost = dollars === null ? DASH : t("lang.usd", { n: dollars });
    const told = found && found !== english ? ` (${t("lang.times", { n: times(found.ms / english.ms) })})` : "";
    const cells = [
      whole(tokens),
      seconds === undefined ? DASH : time(1000 * seconds),
      cost,
      found ? whole(found.tokens) : DASH,
      found ? time(found.ms) + told : DASH,
    ];
    const line = tableRow(named(language), cells);
    line.dataset.language = language.tag;
    line.children[2].className = "n predicted";
    line.children[3].className = "n predicted";
    line.children[5].className = "n measured";
    return line;
  });
  find("effect-rows").replaceChildren(...rows);
}

/** Asks the simulator for every length of prompt, and for a price. */
function forecast() {
  if (!languages.length || !length.reportValidity()) return;
  predict(async (signal) => {
    const base = { model: find("effect-model").value, hardware: find("effect-hardware").value };
    const values = [...new Set(languages.map(promptOf))];
    const sweep = { base, axes: [{ knob: "prompt_tokens", values }], metrics: ["ttft"] };
    const [answer, estimate] = await Promise.all([
      post("/api/v1/sweep", sweep, { signal }),
      post("/api/v1/estimate", { ...base, batch: 32 }, { signal }),
    ]);
    predicted = new Map(values.map((value, index) => [value, answer.metrics.ttft.values[index]]));
    price = estimate.usd_per_mtok.value;
    drawEffect();
  }, tellIn(find("effect-problem")));
}

// ── measured here ──────────────────────────────────────────────────────────────────────────────

let ready = false;
let busy = false;
const allow = () => {
  button.disabled = !ready || busy || article.value === "0";
};

onReady((now) => {
  ready = now;
  allow();
});

/** The time to the first token of one prompt, by itself. */
function first(prompt) {
  return generate({ prompt, max_tokens: 1, temperature: 0 });
}

/** One prompt after the other, so that none waits for another; the first one twice, to warm up. */
async function measure() {
  const tell = tellIn(find("effect-problem"));
  const all = languages;
  busy = true;
  allow();
  tell(null);
  try {
    await first(all[0].text);
    for (const [done, language] of all.entries()) {
      if (all !== languages) return; // another article was chosen meanwhile
      const step = { language: NAMES.of(language.tag), done: done + 1, total: all.length };
      setText(find("effect-line"), t("lang.measuring", step));
      const run = await first(language.text);
      if (run.error) {
        setText(find("effect-line"), t("lang.stopped"));
        tell({ message: errorText(run.error) });
        return;
      }
      if (all !== languages) return;
      measured.set(language.tag, { tokens: run.accepted.prompt_tokens, ms: run.done.ttft_ms });
      drawEffect();
      if (done === all.length - 1) finish(run.accepted.model);
    }
  } finally {
    busy = false;
    allow();
  }
}

function finish(model) {
  const [slowest, { ms }] = [...measured].sort((a, b) => b[1].ms - a[1].ms)[0];
  const ratio = times(ms / measured.get("en").ms);
  const told = { model, slowest: NAMES.of(slowest), times: ratio };
  setText(find("effect-line"), t("lang.measured", told));
  did("languages");
}

button.addEventListener("click", measure);
article.addEventListener("change", load);
choice.addEventListener("change", () => {
  draw();
  forecast();
});
settled(length, () => {
  drawEffect();
  forecast();
});
for (const id of ["effect-model", "effect-hardware"]) find(id).addEventListener("change", forecast);
load();
