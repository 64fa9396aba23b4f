// Which head, and which token that looks, all widgets of the attention lesson show.

import { mountText, onText } from "./inside.js";

const listeners = [];
let current = null;

/** `layer` and `head` count from 0; `query` is the position that looks back. */
export const chosen = { layer: 0, head: 0, query: 0 };

/** Calls `then(chosen, text)` whenever the choice or the text changes. */
export function onChosen(then) {
  listeners.push(then);
  if (current) then(chosen, current);
}

function tellAll(text) {
  for (const then of listeners) then(chosen, text);
}

/** Chooses another head or token: `choose({ layer: 3, head: 2 })`. */
export function choose(changes) {
  const before = { ...chosen };
  Object.assign(chosen, changes);
  const same = Object.keys(before).every((name) => before[name] === chosen[name]);
  if (current && !same) tellAll(current);
}

export const HABITS = ["first", "previous", "own"];
const HALF = 0.5;

/** Where a head's queries rest in the mean: "first", "previous", "own", or "spread" over others. */
export function habitOf(head) {
  const [habit, share] = HABITS.map((name) => [name, head[name] ?? 0]).reduce((most, next) =>
    next[1] > most[1] ? next : most,
  );
  return share >= HALF ? habit : "spread";
}

/** Begins with the head that looks most at the token before. */
function begin(text) {
  current = text;
  const heads = text.answer.heads;
  const start = heads.reduce((most, next) =>
    (next.previous ?? 0) > (most.previous ?? 0) ? next : most,
  );
  const { layer, head } = start;
  Object.assign(chosen, { layer, head, query: text.ids.length - 1 });
  tellAll(text);
}

onText(begin);
mountText("overview");
