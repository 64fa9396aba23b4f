// The growing text, token by token; a table of what was taken; and every way that was walked.

import { el, tableRow } from "../dom.js";
import { percent, t, visible, whole } from "../texts.js";
import { ends, pathTo, shared, textsOf } from "./loop-tree.js";
import { tok, written } from "./tok.js";

const MOST_SHOWN = 80;
const MOST_WAYS = 8;

const rankText = ({ rank }) => (rank ? t("loop.rank", { n: rank + 1 }) : t("loop.likeliest"));

/** A token of the text; one that ends inside a character shows that it is there, and its bytes. */
function part(text, kind, { piece, special }, title) {
  const silent = text ? "" : " silent";
  return tok(text || "▫", `${kind}${special ? " control" : ""}${silent}`, text ? title : `${piece} ${title}`);
}

/** The whole text into `box`: the prompt, what was taken, and where the next token goes. */
export function drawText(box, tree) {
  const taken = pathTo(tree.at).map((at) => at.choice);
  const texts = textsOf([...tree.prompt, ...taken]);
  const hidden = Math.max(0, tree.prompt.length - MOST_SHOWN);
  const parts = tree.prompt.map((token, i) => part(texts[i], "prompt", token, t("loop.prompt")));
  parts.splice(0, hidden);
  if (hidden) parts.unshift(el("span", "soft", `… ${t("loop.earlier", { n: hidden })} `));
  taken.forEach((choice, i) => {
    const title = `${percent(choice.p)}, ${rankText(choice)}`;
    parts.push(part(texts[tree.prompt.length + i], choice.rank ? "other" : "taken", choice, title));
  });
  if (!taken.at(-1)?.special) parts.push(el("span", "caret", "?"));
  box.replaceChildren(...parts);
}

/** The same as rows of a table. */
export function drawRows(body, tree) {
  body.replaceChildren(
    ...pathTo(tree.at).map(({ choice, depth }) => {
      const cells = [
        el("td", "", visible(choice.piece)),
        el("td", "n", String(choice.id)),
        el("td", "n", percent(choice.p)),
        el("td", "", rankText(choice)),
      ];
      return tableRow(el("th", "n", whole(depth)), cells);
    }),
  );
}

/** Every way that was walked, as buttons that lead to its end; the common part is pale. */
export function drawWays(list, tree, onGo) {
  const all = ends(tree.root);
  const shown = all.slice(-MOST_WAYS);
  list.parentElement.hidden = all.length < 2;
  list.replaceChildren(
    ...shown.map((end) => {
      const others = all.filter((other) => other !== end);
      const common = Math.max(0, ...others.map((other) => shared(end, other)));
      const pieces = textsOf(pathTo(end).map((at) => at.choice)).map(written);
      const button = el("button", "way");
      button.type = "button";
      const here = tree.at === end || shared(tree.at, end) === tree.at.depth;
      if (here) button.setAttribute("aria-current", "true");
      const own = pieces.slice(common).join("");
      button.setAttribute("aria-label", t("loop.way", { n: common, text: own }));
      button.append(el("span", "common", pieces.slice(0, common).join("")), el("b", "", own));
      button.addEventListener("click", () => onGo(end));
      const item = el("li");
      item.append(button);
      return item;
    }),
  );
}
