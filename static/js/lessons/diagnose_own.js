// The cases to solve, and the reader's own numbers.

import { setText } from "../dom.js";
import { ttft } from "../run.js";
import { t } from "../texts.js";
import { onRun } from "./diagnose_journey.js";
import { did } from "./lesson.js";
import { facts } from "./ready.js";

const WEIGHTS = { float32: "fp32", bfloat16: "bf16" };
const form = document.getElementById("diagnose-form");
const take = document.getElementById("take-run");
const told = document.getElementById("take-status");
const solved = new Set();
let run = null;

document.body.addEventListener("htmx:afterSettle", ({ target, detail }) => {
  if (target.matches?.(".solution")) solve(target);
  if (target.id === "diagnosis" && detail.requestConfig?.elt === form) {
    if (target.querySelector(".causes")) did("own");
  }
});

/** A case counts as solved once what is slow was said rightly. */
function solve(place) {
  const box = place.closest("[data-case]");
  const [phase, cause] = place.querySelectorAll("[data-right]");
  if (phase?.dataset.right !== "yes") return;
  solved.add(box.dataset.case);
  box.dataset.solved = "yes";
  const right = cause.dataset.right === "yes" ? "case.both" : "case.phase";
  setText(box.querySelector("[data-state]"), t(right));
  if (solved.size >= 3) did("cases");
}

onRun((last) => {
  run = last;
  take.disabled = false;
});

/** Sets a field; false if it has no such choice. */
function set(name, value) {
  const field = form.elements[name];
  if (field.tagName === "SELECT" && ![...field.options].some((option) => option.value === value)) {
    return false;
  }
  field.value = value;
  return true;
}

take.addEventListener("click", () => {
  const { catalogue_model: model } = facts() ?? {};
  if (!model || !set("hardware", "this-machine")) return setText(told, t("own.notHere"));
  const gaps = run.done.itl_ms;
  set("model", model);
  set("weights", WEIGHTS[run.accepted.dtype] ?? "bf16");
  set("kv", WEIGHTS[run.accepted.dtype] ?? "bf16");
  set("devices", "1");
  set("batch", "1");
  set("prompt", String(run.accepted.prompt_tokens));
  set("output", String(run.done.usage.completion_tokens));
  set("ttft", ttft(run).toPrecision(4));
  set("itl", (gaps.reduce((total, gap) => total + gap, 0) / gaps.length).toPrecision(4));
  set("itl_p99", "");
  set("queue", "");
  setText(told, t("own.taken"));
  form.requestSubmit();
});
