// Says when the server cannot be reached: in the header, and where a prediction was asked for.

import { el, setText } from "./dom.js";
import { t } from "./texts.js";

const RETRY_MS = 2000;
const UNREACHABLE = "unreachable";
const engine = () => document.getElementById("engine");
let timer = null;

export const ask = () => htmx.trigger(document.body, "engine-changed");

function markEngine(onLost) {
  clearTimeout(timer);
  timer = setTimeout(ask, RETRY_MS);
  const { dataset } = engine();
  if (dataset.state === UNREACHABLE) return;
  dataset.state = UNREACHABLE;
  dataset.ready = "no";
  setText(engine().querySelector("span:not(.dot)"), t("engine.unreachable"));
  onLost();
}

function markPrediction(key) {
  document.getElementById("elsewhere-answer").replaceChildren(el("p", "notice", t(key)));
}

/** `onLost()` is called when the server stops answering; once it answers, the header is loaded. */
export function mountReach(onLost) {
  const failed = (key) => ({ detail }) => {
    if (detail.elt === engine()) markEngine(onLost);
    if (detail.elt.id === "elsewhere-form") markPrediction(key);
  };
  const { body } = document;
  body.addEventListener("htmx:sendError", failed("elsewhere.unreachable"));
  body.addEventListener("htmx:timeout", failed("elsewhere.unreachable"));
  body.addEventListener("htmx:responseError", failed("elsewhere.failed"));
  body.addEventListener("htmx:configRequest", ({ detail }) => {
    // The header does not show what it showed: the server must not answer "nothing changed".
    if (detail.elt === engine() && engine().dataset.state === UNREACHABLE) {
      [detail.path] = detail.path.split("?");
    }
  });
}
