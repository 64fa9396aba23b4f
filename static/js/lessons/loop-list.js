// What may come next: the likeliest tokens as bars, one of them selected, and all others together.

import { el, svg } from "../dom.js";
import { percent, t, visible } from "../texts.js";

/** A bar that fills `share` of its row. */
export function bar(share, name = "") {
  const picture = svg("svg", { class: `bar ${name}`, "aria-hidden": "true" });
  picture.append(svg("rect", { class: "track", width: "100%", height: "100%" }));
  picture.append(svg("rect", { class: "share", width: `${100 * share}%`, height: "100%" }));
  return picture;
}

function row(tag, name, piece, p) {
  const node = el(tag, name);
  node.append(el("span", "piece", piece), bar(p), el("span", "p", percent(p)));
  return node;
}

/**
 * Draws into `list`, a listbox: arrows select, Enter and Space take. `onTake(index)` is called for
 * a candidate that is taken, `onBack()` where the reader wants one token less.
 */
export function mountList(list, others, { onTake, onBack }) {
  let shown = null;
  let selected = 0;

  const options = () => [...list.children];

  function select(index) {
    const all = options();
    selected = Math.max(0, Math.min(index, all.length - 1));
    all.forEach((node, i) => node.setAttribute("aria-selected", String(i === selected)));
    const chosen = all[selected];
    if (chosen) list.setAttribute("aria-activedescendant", chosen.id);
    else list.removeAttribute("aria-activedescendant");
  }

  const MOVES = {
    ArrowDown: () => select(selected + 1),
    ArrowUp: () => select(selected - 1),
    Home: () => select(0),
    End: () => select(options().length - 1),
    ArrowRight: () => onTake(selected),
    Enter: () => onTake(selected),
    " ": () => onTake(selected),
    ArrowLeft: onBack,
    Backspace: onBack,
  };
  list.addEventListener("keydown", (event) => {
    if (!MOVES[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    MOVES[event.key]();
  });
  list.addEventListener("click", (event) => {
    const chosen = event.target.closest('[role="option"]');
    if (chosen) onTake(options().indexOf(chosen));
  });

  function draw({ top, numOthers, rest }) {
    list.replaceChildren(
      ...top.map((candidate, i) => {
        const { piece, p, special } = candidate;
        const node = row("li", special ? "control" : "", visible(piece), p);
        node.id = `${list.id}-${i}`;
        node.setAttribute("role", "option");
        const name = { piece: visible(piece), p: percent(p) };
        node.setAttribute("aria-label", t(special ? "loop.option.end" : "loop.option", name));
        return node;
      }),
    );
    others.replaceChildren(row("p", "", t("loop.others", { n: numOthers }), rest));
    select(0);
  }

  return {
    /** Shows a place's candidates, none where there are no more. */
    show(next) {
      if (next === shown) return;
      shown = next;
      if (next) return draw(next);
      list.replaceChildren();
      others.replaceChildren();
      select(0);
    },
    /** The number of the candidate that the reader has selected. */
    selected: () => selected,
    busy(running) {
      list.setAttribute("aria-busy", String(running));
    },
  };
}
