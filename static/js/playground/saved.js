// A run as a document that can be saved, shared and exported, and such a document as a run again.

import { newRun, take } from "../run.js";

const VERSION = 1;
const TITLE_LENGTH = 80;
/** What is known of the machine, under the names of the engine's facts. */
const MACHINE = [
  "model_name",
  "device",
  "device_name",
  "layers",
  "hidden",
  "heads",
  "kv_heads",
  "head_dim",
  "intermediate",
  "vocabulary",
  "max_context",
  "random_weights",
  "source_format",
];
/** What `take` and the widgets write into events, and what only the connection needs. */
const ADDED = {
  step: ["given", "token", "drafts", "accepted"],
  token: ["step"],
  error: ["context"],
};

function plain(event) {
  const copy = { ...event };
  for (const name of ["request_id", "seq", ...(ADDED[event.type] ?? [])]) delete copy[name];
  return copy;
}

/** The prompt as it was typed. */
export const promptOf = ({ prompt, messages }) => prompt ?? messages.at(-1).content;

/** A short name for a run: how its prompt begins. */
export function titleOf(request) {
  const line = promptOf(request).replace(/\s+/g, " ").trim();
  const letters = [...line];
  return letters.length > TITLE_LENGTH ? `${letters.slice(0, TITLE_LENGTH - 1).join("")}…` : line;
}

/** Whether there is something to keep: the run is over, and the engine had taken it in. */
export const canSave = (run) => Boolean(run?.endedAt && run.accepted && run.facts);

/** The document of a run that is over; see `webapp/schemas/saved_run.py`. */
export function documentOf(run, { title = titleOf(run.request), by = "" } = {}) {
  return {
    version: VERSION,
    title,
    by,
    ran_at_ms: run.endedAt,
    request: run.request,
    machine: Object.fromEntries(MACHINE.map((name) => [name, run.facts[name]])),
    roof: run.roof,
    events: run.events.filter((event) => event.type !== "opening").map(plain),
  };
}

/** An empty run that shows what was recorded in `document`. */
export function emptyRun(document) {
  const run = newRun(document.request);
  return Object.assign(run, {
    recorded: true,
    sent: true,
    at: 0,
    endedAt: document.ran_at_ms,
    facts: document.machine,
    roof: document.roof,
  });
}

/** The whole run of `document`. */
export function runOf(document) {
  const run = emptyRun(document);
  for (const event of document.events) take(run, { ...event });
  return run;
}
