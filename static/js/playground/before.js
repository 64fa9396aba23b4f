// Comparing the run on the page with the one before it, or with the saved run that it repeats.

import { get, Problem } from "../api.js";
import { isOver } from "../run.js";
import { changed, store } from "../store.js";
import { compare } from "./compare.js";
import { runOf } from "./saved.js";

/** Mounts the section; `again` is the id of the saved run whose settings are in the form, or null. */
export function mountBefore(again) {
  const section = document.getElementById("before");
  const place = section.querySelector("[data-comparison]");
  let shown = null;

  async function load() {
    try {
      store.before ??= runOf((await get(`/api/v1/runs/${again}`)).run);
      changed();
    } catch (error) {
      if (!(error instanceof Problem)) throw error; // it may be deleted by now: then not compared
    }
  }
  if (again) load();
  section.addEventListener("toggle", changed);

  return ({ live, before }) => {
    const ready = Boolean(before && live && isOver(live) && live.tokens.length);
    section.hidden = !ready;
    if (!ready || !section.open || shown === live) return;
    shown = live;
    compare(place, before, live);
  };
}
