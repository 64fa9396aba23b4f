// The line under the form, and what a screen reader hears: start, first token, end.

import { median, setText } from "./dom.js";
import { gaps, isOver, ttft } from "./run.js";
import { has, sentences, t, time } from "./texts.js";

const announce = document.getElementById("announce");

/** Says a sentence to a screen reader, politely. */
export function say(text) {
  setText(announce, text);
}

function sentence(run) {
  if (run.error) return errorText(run.error);
  if (run.done) return doneText(run);
  if (run.stopping) return t("status.stopping");
  if (run.status === "sending") return t(run.sent ? "status.sending" : "status.connecting");
  if (run.status === "waiting") return waitingText(run);
  if (run.preempted && run.steps.at(-1)?.phase === "prefill" && run.tokens.length) {
    return t("status.preempted", { n: run.preempted });
  }
  if (run.status === "prefill") return t("status.prefill", { n: run.accepted.prompt_tokens });
  return t("status.decode", { n: run.tokens.length, max: run.accepted.max_tokens });
}

function waitingText(run) {
  if (run.position > 1) return t("status.waiting", { n: run.position - 1 });
  if (run.position === 1) return t("status.next");
  return t("status.prefill", { n: run.accepted.prompt_tokens });
}

function doneText(run) {
  const { finish_reason: reason, usage } = run.done;
  return t(`done.${reason}`, { n: usage.completion_tokens });
}

function errorText({ code, message, context }) {
  if (has(`error.${code}`)) return t(`error.${code}`, { max: context ?? "" });
  return t("error.other", { message });
}

function settings(run) {
  const { seed, dtype, device, notices } = run.accepted;
  const told = notices.filter((notice) => has(`notice.${notice}`));
  return sentences([
    t("done.seed", { seed: String(seed), dtype, device }),
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
  let problem = null;

  function tell(run) {
    if (told?.run !== run) told = { run, first: false, over: false };
    if (!told.first && run.tokens.length) {
      told.first = true;
      say(t("say.first", { time: time(ttft(run)) }));
    }
    if (!told.over && isOver(run)) {
      told.over = true;
      const itl = median(gaps(run));
      const values = { status: sentence(run), itl: itl === null ? "—" : time(itl) };
      say(run.done ? t("say.done", { ...values, text: run.done.text }) : sentence(run));
    }
  }

  function paint({ run, engineReady, facts }) {
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
    setText(line, problem ?? sentences([sentence(run), extra]));
    again.hidden = !(run.error && !run.error.field);
    again.disabled = engineReady === false;
    problem = null;
    tell(run);
  }

  return {
    paint,
    /** Shows a problem with the form itself. */
    problem(text) {
      problem = text;
      place.dataset.kind = "error";
      setText(line, text);
      say(text);
    },
  };
}
