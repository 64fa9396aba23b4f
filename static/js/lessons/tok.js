// One token of a text, with edges of its own.

import { el } from "../dom.js";

/** Spaces stay spaces, for every token has its own edges; line ends are shown and end no line. */
export const written = (piece) => piece.replaceAll("\n", "↵").replaceAll("\t", "⇥");

/**
 * A token as an element. `kind`: prompt, taken (the likeliest was), other (another was), and
 * control beside one of them; `title` says more.
 */
export function tok(piece, kind, title) {
  const node = el("span", `tok ${kind}`, written(piece));
  node.title = title;
  return node;
}
