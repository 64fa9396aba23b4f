// The line under the form, and what a screen reader hears: start, first token, end.

import { setText } from "./dom.js";
import { isOver, ttft, usualGap } from "./run.js";
import { laneOf, store } from "./store.js";
import { has, percent, sentences, t, time, whole } from "./texts.js";

const announce = document.getElementById("announce");

/** Says a sentence to a screen reader, politely. */
export function say(text) {
  setText(announce, text);
}

function sentence(run) {
  if (run.error) return errorText(run.error);
  if (run.done) return doneText(run);
  if (run.stopping) return t("status.stopping");
  if (run.status === "opening") return openingText(run.opening);
  if (run.status === "sending") return t(run.sent ? "status.sending" : "status.connecting");
  if (run.status === "waiting") return waitingText(run);
  if (run.preempted && run.steps.at(-1)?.phase === "recompute") {
    return t("status.preempted", { n: run.preempted });
  }
  if (run.status === "prefill") return prefillText(run);
  return t("status.decode", { n: run.tokens.length, max: run.accepted.max_tokens });
}

const OPENING = {
  quantizing: "status.opening.quantizing",
  loading: "status.opening.loading",
  warming_up: "status.opening.warmingUp",
};

/** How far the lane is that the run waits for. */
function openingText({ lane, ahead, stage, share, part }) {
  if (ahead > 0) return t("status.opening.ahead", { lane, n: ahead });
  return t(OPENING[stage] ?? "status.opening", { lane, share: percent(share), part: partText(part) });
}

/** What is being prepared: a layer by its number, or what stands behind all layers. */
function partText(part) {
  const layer = /^layers\.(\d+)$/.exec(part);
  if (!layer) return t(part ? "opening.head" : "opening.rest");
  return t("opening.layer", { number: Number(layer[1]) + 1, total: store.facts?.layers ?? "—" });
}

/** A prompt that takes several steps is told step by step. */
function prefillText(run) {
  const { prompt_tokens: total } = run.accepted;
  const read = run.steps.at(-1)?.own_kv_tokens ?? 0;
  if (read > 0 && read < total) return t("status.prefillPart", { read: whole(read), n: total });
  return t("status.prefill", { n: total });
}

function waitingText(run) {
  if (run.position > 1) return t("status.waiting", { n: run.position - 1 });
  if (run.position === 1) return t("status.next");
  return prefillText(run);
}

function doneText(run) {
  const { finish_reason: reason, usage } = run.done;
  return t(`done.${reason}`, { n: usage.completion_tokens });
}

/** What went wrong with a run, as a sentence. */
export function errorText({ code, message, context, reason, values }) {
  if (has(`refusal.${reason}`)) return t("error.because", { message: t(`refusal.${reason}`, values) });
  if (has(`error.${code}`)) return t(`error.${code}`, { max: context ?? "" });
  return t("error.other", { message });
}

function settings(run) {
  const { seed, dtype, device, notices } = run.accepted;
  const { drafted_tokens: drafted, accepted_tokens: accepted, cached_tokens: known } = run.done.usage;
  const told = notices.filter((notice) => has(`notice.${notice}`));
  const values = {
    seed: String(seed),
    dtype: laneOf(run)?.name ?? dtype,
    device: device.startsWith("cuda") ? "GPU" : "CPU",
  };
  return sentences([
    t(run.request.temperature === 0 ? "done.greedy" : "done.seed", values),
    known && t("done.known", { n: known }),
    drafted && t("done.drafts", { accepted: whole(accepted), n: drafted }),
    ...told.map((notice) => t(`notice.${notice}`)),
  ]);
}

export function mountStatus() {
  const line = document.getElementById("status");
  const place = document.getElementById("ask-status");
  const again = document.getElementById("again");
  const go = document.getElementById("go");
  const stop = document.getElementById("stop");
  let told = null;
  let problem = null; // with the form, told until another run begins

  function tell(run) {
    if (told?.run !== run) told = { run, first: false, over: false, opening: "" };
    if (run.status === "opening" && !run.stopping) {
      // Not each layer: a new stage, another place, or a quarter more.
      const { ahead, stage, share } = run.opening;
      const news = `${ahead} ${stage} ${Math.floor(share * 4)}`;
      if (told.opening !== news) say(sentence(run));
      told.opening = news;
    }
    if (!told.first && run.tokens.length) {
      told.first = true;
      say(t("say.first", { time: time(ttft(run)) }));
    }
    if (!told.over && isOver(run)) {
      told.over = true;
      const itl = usualGap(run);
      const values = { status: sentence(run), itl: itl === null ? "—" : time(itl) };
      const text = run.drafted ? "say.doneMean" : "say.done";
      say(run.done ? t(text, { ...values, text: run.done.text }) : sentence(run));
    }
  }

  function paint({ live: run, engineReady, facts }) {
    const running = Boolean(run) && !isOver(run);
    const focused = document.activeElement;
    go.hidden = running;
    stop.hidden = !running;
    // Run and Stop share one place: whoever was on the one is on the other now.
    if (focused === go && running) stop.focus();
    if (focused === stop && !running) go.focus();
    go.disabled = !running && engineReady === false;
    if (!run) return;
    if (run.error && facts) run.error.context = facts.max_context;
    const over = isOver(run);
    place.dataset.kind = run.error ? "error" : over ? "done" : "running";
    const extra = run.done && run.accepted ? settings(run) : "";
    if (problem && problem.run !== run) problem = null;
    if (problem) place.dataset.kind = "error";
    setText(line, problem?.text ?? sentences([sentence(run), extra]));
    again.hidden = Boolean(problem) || !run.error || Boolean(run.error.field);
    again.disabled = engineReady === false;
    tell(run);
  }

  /** Shows a problem with the form itself, in place of what the last run left here. */
  function tellProblem(text) {
    problem = { run: store.live, text };
    place.dataset.kind = "error";
    again.hidden = true;
    setText(line, text);
    say(text);
  }

  // The browser says at the field what is wrong with it.
  const form = document.getElementById("ask");
  form.addEventListener("invalid", () => tellProblem(t("error.form")), true);

  return { paint, problem: tellProblem };
}
