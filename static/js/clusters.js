// One character a reader sees can be written by several tokens: it is drawn whole, where it begins.

import { graphemes } from "./texts.js";

/** Shares the texts of tokens out among their elements, one after the other. */
export class Clusters {
  #last = ""; // the last character so far, which the next token may go on with
  #owner = null; // the element where it began

  /** Sets the element's text, less what belongs to a character of an earlier one; returns that. */
  put(node, text) {
    const all = graphemes(this.#last + text);
    const joined = this.#last && all.length ? all[0].slice(this.#last.length) : "";
    const own = text.slice(joined.length);
    if (joined) this.#owner.textContent += joined;
    node.textContent = own;
    if (own) this.#owner = node;
    if (all.length) this.#last = all.at(-1);
    return joined;
  }
}
