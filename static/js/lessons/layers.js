// Which token the widgets of the layers lesson look at, and the guess about when it is decided.

import { visible } from "../texts.js";
import { mountText, onText } from "./inside.js";

const listeners = [];
let current = null;
let chosen = 0;

/** Calls `then(position, text)` whenever the token or the text changes. */
export function onPosition(then) {
  listeners.push(then);
  if (current) then(chosen, current);
}

/** Looks at another token. */
export function choosePosition(position) {
  if (!current || position === chosen) return;
  chosen = position;
  for (const then of listeners) then(chosen, current);
}

/** Every token as a choice of a <select>, which follows the page's choice and sets it. */
export function mountPositions(select) {
  let pieces = null;
  select.addEventListener("change", () => choosePosition(Number(select.value)));
  onPosition((position, text) => {
    if (text.pieces !== pieces) {
      pieces = text.pieces;
      select.replaceChildren(
        ...pieces.map((piece, at) => new Option(`${visible(piece)} (${at})`, String(at))),
      );
    }
    select.value = String(position);
  });
}

onText((text) => {
  current = text;
  chosen = text.ids.length - 1;
  for (const then of listeners) then(chosen, text);
});
mountText("hidden-norms");
