// The two answers: TTFT and ITL, measured, beside what was predicted, and what they are made of.

import { setText, sum, svg } from "./dom.js";
import { gaps, isOver, pauses, phases, predictedItl, predictedTtft, ttft, usualGap } from "./run.js";
import { laneOf, roofOf } from "./store.js";
import { bandwidth, bytes, flops, percent, rate, sentences, t, time, timeParts, times, whole } from "./texts.js";

const MOST_GAPS_DRAWN = 400;

/** Each sentence is its own text, so languages order words as they like. */
const write = (node, list) => setText(node, sentences(list));

function showBig(card, ms) {
  const [value, unit] = ms === null ? ["—", ""] : timeParts(ms);
  setText(card.querySelector("[data-value]"), value);
  card.querySelector(".big").classList.toggle("none", ms === null);
  setText(card.querySelector("[data-unit]"), unit);
}

/** How a measured time stands to its prediction, in words: to the typical time where that is known,
 * else to the ideal one. `early`: no step has ended yet; `waited`: measured is without a wait. */
function compare(measured, { ideal, typical }, early, waited = false) {
  const predicted = typical ?? ideal;
  if (predicted === null) return t(early ? "predicted.wait" : "predicted.none");
  const kind = typical === null ? "ideal" : "typical";
  const values = { value: time(predicted), ideal: ideal === null ? "—" : time(ideal) };
  const value = t(`predicted.${kind}${waited ? ".noWait" : ""}`, values);
  if (measured === null) return value;
  const ratio = measured / predicted;
  if (ratio >= 2) return `${value} · ${t("predicted.times", { ratio: times(ratio) })}`;
  const share = percent(Math.abs(ratio - 1));
  if (Math.abs(ratio - 1) < 0.01) return `${value} · ${t("predicted.same")}`;
  return `${value} · ${t(ratio > 1 ? "predicted.more" : "predicted.less", { share })}`;
}

/** Both predictions of what `of` adds up. */
const predictions = (run, of) => ({
  ideal: run ? of(run, "ideal") : null,
  typical: run ? of(run, "typical") : null,
});

/** FLOPs, bytes and seconds of some steps together; null where the cost of one is not known. */
function total(steps) {
  if (!steps.length || steps.some((step) => step.flops === null || step.bytes === null)) return null;
  return {
    flops: sum(steps.map((step) => step.flops)),
    bytes: sum(steps.map((step) => step.bytes)),
    seconds: sum(steps.map((step) => step.time)),
    bound: steps[0].bound,
  };
}

function ttftRate(run, steps) {
  const cost = total(steps);
  if (!cost) return "";
  const values = { flops: flops(cost.flops), rate: rate(cost.flops / cost.seconds) };
  const roof = roofOf(run);
  if (!roof) return t("ttft.rateUnknown", values);
  if (cost.bound === "memory") {
    const reached = cost.bytes / cost.seconds;
    return t("ttft.rateMemory", {
      bytes: bytes(cost.bytes),
      rate: bandwidth(reached),
      share: percent(reached / roof.bandwidth),
    });
  }
  return t("ttft.rate", { ...values, share: percent(cost.flops / cost.seconds / roof.peak) });
}

/** The part of a TTFT that is neither cutting the text nor computing. */
function waiting(run, measured) {
  const compute = sum(phases(run).prefill.map((step) => step.time_ms));
  return Math.max(0, measured - run.accepted.tokenize_ms - compute);
}

const isLong = (wait, measured) => wait > measured / 20;

function ttftSentences(run, measured, facts) {
  const steps = phases(run).prefill;
  const { prompt_tokens: prompt, tokenize_ms: tokenize } = run.accepted;
  const compute = sum(steps.map((step) => step.time_ms));
  const wait = waiting(run, measured);
  const waited = isLong(wait, measured);
  const shared = steps.some((step) => step.batch > 1);
  return [
    t("ttft.compute", {
      n: prompt,
      layers: facts?.layers ?? "—",
      steps: t("ttft.steps", { n: steps.length }),
    }),
    ttftRate(run, steps),
    shared && t("ttft.mates"),
    t("ttft.parts", { tokenize: time(tokenize), compute: time(compute), wait: time(wait) }),
    waited && t("ttft.waited"),
  ];
}

/** Only computing is predicted, so a run that waited for others is compared without its wait. */
function compareTtft(run, measured) {
  const predicted = predictions(run, predictedTtft);
  const wait = measured === null ? 0 : waiting(run, measured);
  if (!isLong(wait, measured)) return compare(measured, predicted, !run?.steps.length);
  return compare(measured - wait, predicted, false, true);
}

function paintTtft(card, { run, facts }) {
  const measured = run ? ttft(run) : null;
  showBig(card, measured);
  setText(
    card.querySelector("[data-predicted]"),
    compareTtft(run, measured),
  );
  if (measured !== null) {
    write(card.querySelector("[data-why]"), ttftSentences(run, measured, facts));
  } else if (run) {
    write(card.querySelector("[data-why]"), [t(isOver(run) ? "ttft.none" : "ttft.wait")]);
  }
}

/** What a decode step, such as `middle`, reads and does. */
function readSentence(run, middle) {
  const lane = laneOf(run);
  if (lane?.kv_cache === "off") return t("itl.off");
  const kv = lane && middle ? bytes(middle.own_kv_tokens * lane.kv_bytes_per_token) : "—";
  return t(run.drafted ? "itl.drafts" : "itl.weights", { kv });
}

function itlSentences(run) {
  const steps = phases(run).decode;
  const batch = Math.max(...steps.map((step) => step.batch), 1);
  const middle = [...steps].sort((a, b) => a.time - b.time)[steps.length >> 1];
  const parts = [readSentence(run, middle)];
  if (middle && middle.bytes !== null) {
    const roof = roofOf(run);
    const reached = middle.bytes / middle.time;
    const values = {
      bytes: bytes(middle.bytes),
      time: time(middle.time_ms),
      rate: bandwidth(reached),
    };
    parts.push(
      roof
        ? t("itl.rate", {
            ...values,
            share: percent(reached / roof.bandwidth),
            bandwidth: bandwidth(roof.bandwidth),
          })
        : t("itl.rateUnknown", values),
    );
  }
  const shared = steps.filter((step) => step.batch > 1).length;
  if (shared) {
    parts.push(t("itl.mates", { shared: whole(shared), n: steps.length, max: batch }));
  }
  const waited = sum(pauses({ steps }));
  if (waited) {
    const share = percent(waited / (waited + sum(steps.map((step) => step.time_ms))));
    parts.push(t("itl.pauses", { share }));
  }
  return parts;
}

function paintSpread(card, values, middle, drafted) {
  const place = card.querySelector("[data-spread]");
  place.hidden = values.length < 3;
  if (place.hidden) return;
  const rug = place.querySelector("svg");
  const most = Math.max(...values);
  const every = Math.ceil(values.length / MOST_GAPS_DRAWN);
  const at = (value) => (value / most) * 996 + 2;
  let lines = "";
  for (let i = 0; i < values.length; i += every) lines += `M${at(values[i]).toFixed(1)} 4V16`;
  const title = svg("title");
  title.textContent = t(drafted ? "itl.spread.titleMean" : "itl.spread.title", {
    n: values.length,
    max: time(most),
    usual: time(middle),
  });
  const x = at(middle).toFixed(1);
  rug.replaceChildren(
    title,
    svg("path", { class: "rug-line", d: "M0 10H1000" }),
    svg("path", { class: "rug-gaps", d: lines }),
    svg("path", { class: "rug-median", d: `M${x} 0V20` }),
  );
  setText(
    place.querySelector("[data-spread-text]"),
    t("itl.spread", { min: time(Math.min(...values)), max: time(most) }),
  );
}

function paintItl(card, { run }) {
  const values = run ? gaps(run) : [];
  const middle = run ? usualGap(run) : null;
  showBig(card, middle);
  setText(
    card.querySelector("[data-caption]"),
    middle === null ? "" : t(run.drafted ? "itl.captionMean" : "itl.caption", { n: values.length }),
  );
  setText(
    card.querySelector("[data-predicted]"),
    compare(middle, predictions(run, predictedItl), !run || phases(run).decode.length === 0),
  );
  paintSpread(card, values, middle, run?.drafted);
  if (middle !== null) write(card.querySelector("[data-why]"), itlSentences(run));
  else if (run) {
    const single = isOver(run) && run.tokens.length === 1;
    write(card.querySelector("[data-why]"), [t(single ? "itl.one" : "itl.wait")]);
  }
}

export function mountAnswers() {
  const start = document.getElementById("ttft");
  const stream = document.getElementById("itl");
  return (store) => {
    paintTtft(start, store);
    paintItl(stream, store);
  };
}
