// What every lesson's page does: tasks that complete by being done, the guess before the truth, and
// the reader's own prompt, which goes along from lesson to lesson.

import { setText } from "../dom.js";
import { sentences, t } from "../texts.js";
import { countDone, guessOf, isDone, keepGuess, note, onElsewhere } from "./progress.js";

const slug = document.querySelector("article.lesson").dataset.lesson;
const announce = document.getElementById("announce");

/** Says a sentence to a screen reader, politely. */
export const say = (text) => setText(announce, text);

// ── tasks ──────────────────────────────────────────────────────────────────────────────────────

function show(item, done) {
  if (done) item.dataset.done = "yes";
  else delete item.dataset.done;
  item.querySelector(".found").hidden = !done;
  setText(item.querySelector(".state"), done ? t("progress.complete") : "");
}

function paintTasks() {
  for (const item of document.querySelectorAll("[data-task]")) show(item, isDone(slug, item.dataset.task));
}

/** The reader has done a task of this lesson. Call it as often as it happens. */
export function did(task) {
  const item = document.querySelector(`[data-task="${task}"]`);
  if (!item) throw new Error(`no task named ${task}`);
  if (!note(slug, task)) return;
  show(item, true);
  const all = document.querySelectorAll("[data-task]").length;
  const done = t("lesson.task.done", { task: item.querySelector(".found").textContent });
  say(countDone(slug) >= all ? `${done} ${t("lesson.all.done")}` : done);
}

paintTasks();
onElsewhere(paintTasks);

// ── the guess ──────────────────────────────────────────────────────────────────────────────────

const choices = [...document.querySelectorAll('input[name="guess"]')];
const waiting = [];

/** The number of the choice that the reader guessed, null before that. */
export const guessed = () => guessOf(slug);

/** Calls `then(choice)` once the reader has guessed; at once if that is so already. */
export function onGuess(then) {
  if (guessed() !== null) then(guessed());
  else waiting.push(then);
}

/** Says what was found, beside the guess. `right` is the number of the choice that was right. */
export function tellTruth(sentence, right) {
  const truth = document.getElementById("truth");
  const choice = guessed();
  const verdict =
    choice === null ? "" : t(choice === right ? "lesson.guess.right" : "lesson.guess.wrong");
  truth.hidden = false;
  setText(truth, sentences([sentence, verdict]));
  choices.forEach((input, index) => {
    input.parentElement.dataset.truth = index === right ? "right" : "";
  });
}

for (const input of choices) {
  if (Number(input.value) === guessed()) input.checked = true;
  input.addEventListener("change", () => {
    const first = guessed() === null;
    keepGuess(slug, Number(input.value));
    if (first) for (const then of waiting.splice(0)) then(guessed());
  });
}

// ── the reader's own prompt ────────────────────────────────────────────────────────────────────

const PROMPT = "firsttoken.prompt";

for (const field of document.querySelectorAll("[data-prompt]")) {
  try {
    const kept = localStorage.getItem(PROMPT);
    if (kept?.trim()) field.value = kept;
  } catch {
    // storage is forbidden: the prompt stays on this page
  }
  field.addEventListener("change", () => {
    if (!field.value.trim()) return; // no prompt to take along
    try {
      localStorage.setItem(PROMPT, field.value);
    } catch {
      // as above
    }
  });
}
