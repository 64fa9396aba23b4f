// What is known about one run. Events of the protocol go in, nothing else; widgets only read.

import { median, sum } from "./dom.js";

/** A run that was asked for. `status`: sending, opening, waiting, prefill, decode, done, failed. */
export function newRun(request) {
  return {
    id: request.request_id,
    request,
    status: "sending",
    sent: false,
    stopping: false,
    sentAt: performance.now(),
    position: null,
    accepted: null,
    events: [],
    steps: [],
    tokens: [],
    preempted: 0,
    drafted: false,
    dropped: 0,
    done: null,
    error: null,
    endedAt: null, // Unix time in ms by this machine's clock
  };
}

export const isOver = (run) => run.status === "done" || run.status === "failed";

/** Takes in one event of this run. The event becomes the run's own: it is written to. */
export function take(run, event) {
  if (isOver(run)) return;
  TAKE[event.type]?.(run, event);
  run.events.push(event);
  if (isOver(run)) run.endedAt ??= Date.now();
}

const TAKE = {
  opening(run, event) {
    run.opening = event;
    run.status = "opening";
  },
  accepted(run, event) {
    run.accepted = event;
    run.status = "waiting";
  },
  queued(run, event) {
    run.position = event.position;
  },
  step(run, event) {
    run.steps.push(event);
    run.dropped = event.steps_dropped;
    run.status = run.tokens.length ? "decode" : "prefill";
  },
  token(run, event) {
    // A step gives one token, and the accepted ones of its drafts; if the last step has its tokens
    // already, the step of this one was dropped on the way.
    const last = run.steps.at(-1);
    const given = last && (last.given ?? 0);
    const step = last && given < 1 + (last.accepted ?? 0) ? run.steps.length - 1 : -1;
    event.step = step;
    run.tokens.push(event);
    if (step >= 0) {
      last.given = given + 1;
      last.token ??= run.tokens.length - 1;
    }
    run.status = "decode";
  },
  drafted(run, event) {
    run.drafted = true;
    const last = run.steps.at(-1);
    if (!last || last.given) return; // its step was dropped on the way
    last.drafts = event.draft_pieces;
    last.accepted = event.accepted;
  },
  preempted(run, event) {
    run.preempted += event.lost_tokens;
  },
  done(run, event) {
    run.done = event;
    run.dropped = event.steps_dropped;
    run.status = "done";
  },
  error(run, event) {
    run.error = event;
    run.status = "failed";
  },
};

/** Steps up to the first token, and the steps after it. */
export function phases(run) {
  const first = run.tokens.length ? run.tokens[0].step : -1;
  const end = first >= 0 ? first + 1 : run.steps.findIndex((step) => step.phase !== "prefill");
  const cut = end < 0 ? run.steps.length : end;
  return { prefill: run.steps.slice(0, cut), decode: run.steps.slice(cut) };
}

/**
 * Milliseconds before `step` in which the engine ran no step of this prompt: 0 if `step` came right
 * after `before`, or if steps between them were dropped on the way here.
 */
export function pauseBefore(before, step) {
  if (!before || step.steps_dropped !== before.steps_dropped) return 0;
  const pause = step.start_ms - before.start_ms - before.time_ms;
  // What the engine does between two steps of its own is short beside a step.
  const work = Math.max(1, Math.min(before.time_ms, step.time_ms) / 4);
  return pause > work ? pause : 0;
}

/** All pauses between steps of this run in ms. */
export const pauses = (run) =>
  run.steps.map((step, i) => pauseBefore(run.steps[i - 1], step)).filter(Boolean);

/** What the engine did in the pauses of this run: ms by cause, the longest first. */
export function pauseCauses(run) {
  const causes = {};
  run.steps.forEach((step, i) => {
    if (!pauseBefore(run.steps[i - 1], step)) return;
    for (const [cause, ms] of Object.entries(step.pauses_ms)) causes[cause] = (causes[cause] ?? 0) + ms;
  });
  return Object.entries(causes).sort(([, a], [, b]) => b - a);
}

/** Whether the steps after the first token compute again what was computed: the KV cache is off. */
export const recomputes = (steps) =>
  steps.length > 0 && steps.every((step) => step.phase === "recompute");

/** Time to first token in ms: the first token's time, or what the last event says. */
export const ttft = (run) => run.done?.ttft_ms ?? run.tokens[0]?.time_ms ?? null;

/** All gaps between tokens in ms. */
export const gaps = (run) =>
  run.tokens.map((token) => token.itl_ms).filter((value) => value !== null);

/** The two predictions of a step in ms, null where there is none: at the roofline, and as its lane
 * usually takes once that was measured. */
const PREDICTIONS = {
  ideal: { step: (step) => step.predicted_ms ?? null, done: "predicted" },
  typical: { step: (step) => step.typical_ms ?? null, done: "typical" },
};

/** What a step was expected to take, in ms: typically if that is known, else at the roofline. */
export const expected = (step) => PREDICTIONS.typical.step(step) ?? PREDICTIONS.ideal.step(step);

/** Predicted TTFT in ms: the steps up to the first token; null where a part is unknown. */
export function predictedTtft(run, kind) {
  const told = run.done?.[`${PREDICTIONS[kind].done}_ttft_ms`];
  if (told) return told;
  const times = phases(run).prefill.map(PREDICTIONS[kind].step);
  return times.length && !times.includes(null) ? sum(times) : null;
}

/**
 * The usual gap in ms: the median. Accepted drafts come with another token, after a gap of 0, so a
 * run that had drafts is told by its mean.
 */
export function usualGap(run) {
  const values = gaps(run);
  if (!run.drafted) return median(values);
  return values.length ? sum(values) / values.length : null;
}

/** The predicted steps after the first token, shared out among the tokens that they gave. */
function predictedMean(run, kind) {
  if (run.done) return run.done[`${PREDICTIONS[kind].done}_itl_ms`] ?? null;
  const times = phases(run).decode.map(PREDICTIONS[kind].step);
  const count = gaps(run).length;
  return count && !run.dropped && !times.includes(null) ? sum(times) / count : null;
}

/** Predicted ITL in ms: of the median decode step, or a mean where the measured one is a mean. */
export function predictedItl(run, kind) {
  if (run.drafted) return predictedMean(run, kind);
  const times = phases(run).decode.map(PREDICTIONS[kind].step);
  return median(times.filter((value) => value !== null));
}

/** Prompt tokens that are in the cache, and answer tokens that are. */
export function cached(run) {
  const total = run.steps.at(-1)?.own_kv_tokens ?? 0;
  const prompt = Math.min(total, run.accepted?.prompt_tokens ?? 0);
  return { prompt, answer: total - prompt, total };
}
