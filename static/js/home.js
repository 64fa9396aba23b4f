// The first page: joins the form, the websocket and the widgets.

import { blame, checkForm, mountAsk, offerChat, readRequest } from "./ask.js";
import { mountAnswers } from "./answers.js";
import { mountCache } from "./cache.js";
import { setText } from "./dom.js";
import { mountElsewhere } from "./elsewhere.js";
import { keepForm } from "./keep.js";
import { mountBefore } from "./playground/before.js";
import { mountKeep } from "./playground/keep-run.js";
import { mountReplay } from "./playground/replay.js";
import { canSave, documentOf } from "./playground/saved.js";
import { mountPrinted } from "./printed.js";
import { MAX_PROMPT_CHARS, promptProblem } from "./prompt.js";
import { ask, mountReach } from "./reach.js";
import { mountRoofline } from "./roofline.js";
import { isOver, newRun, take } from "./run.js";
import { Socket } from "./socket.js";
import { mountStatus, say } from "./status.js";
import { changed, onPaint, roofOf, store } from "./store.js";
import { mountStrip } from "./strip.js";
import { mountTable } from "./table.js";
import { t, whole } from "./texts.js";
import { mountText } from "./text.js";
import { mountWay } from "./way.js";

const root = document.getElementById("run");
const PENDING_MS = 5000;
const MOST_KEPT = 2048; // tokens of the run before: a longer one would take megabytes
// Errors that say "not now": once the engine is ready, what they advise is out of date.
const PASSING = new Set(["server_stopping", "engine_restarted", "engine_unavailable"]);
let pending = null; // a run that waits for the connection; sent once or not at all

const socket = new Socket(document.getElementById("ask").dataset.socket, {
  open() {
    if (pending) dispatch();
  },
  event(event) {
    const run = store.live;
    if (event.type === "hello") return announceEngine(event.engine);
    if (event.type === "pong" || !run) return;
    // An error without an id is about a message that could not be read: here, the one just sent.
    const mine =
      event.request_id === run.id ||
      (event.type === "error" && !event.request_id && run.status === "sending");
    if (!mine || isOver(run)) return;
    take(run, event);
    if (event.type === "accepted") Object.assign(run, { facts: store.facts, roof: roofOf(run) });
    if (event.type === "error") failed(event);
    if (isOver(run)) offer(run);
    changed();
  },
  lost(final) {
    if (final) fail("refused");
    else {
      if (running() && !pending) fail("connection");
      ask(); // the server may be gone with it
    }
    changed();
  },
});

function announceEngine(engine) {
  const ready = document.getElementById("engine").dataset.ready === "yes";
  if (ready !== (engine.state === "ready")) ask();
  if (engine.state === "ready") recovered();
}

/** The engine is ready again: the status must not go on saying that it is not. */
function recovered() {
  const error = store.live?.error;
  if (!error || !PASSING.has(error.code)) return;
  store.live.error = { ...error, code: "back" };
  changed();
}

function failed(error) {
  if (error.code.startsWith("engine_")) ask();
  if (error.field) blame(error.field);
}

/** Ends the run on the page with a failure of our own. */
function fail(code) {
  const run = store.live;
  pending = null;
  if (!run || isOver(run)) return;
  take(run, { type: "error", code, message: "" });
  offer(run);
}

/** What can be done with a run that is over: replay it, keep it, compare it. */
function offer(run) {
  if (canSave(run) && run.steps.length) replay.load(run.events, () => documentOf(run));
  keep.show(run);
}

function run() {
  if (running()) return;
  const request = readRequest();
  const problem = promptProblem(request);
  if (problem) {
    status.problem(t(`error.${problem}`, { max: whole(MAX_PROMPT_CHARS) }));
    document.getElementById("prompt").focus();
    return;
  }
  if (!checkForm()) return;
  if (store.live?.done) store.before = store.live.tokens.length > MOST_KEPT ? null : store.live;
  replay.unload();
  keep.show(null);
  store.live = newRun(request);
  store.run = store.live;
  store.selected = null;
  root.dataset.state = store.run.status; // at once: a second click must not see the old run's end
  pending = store.live;
  if (socket.ready) {
    dispatch();
  } else {
    socket.open();
    const waiting = pending;
    setTimeout(() => {
      if (pending === waiting) fail("connection");
      changed();
    }, PENDING_MS);
  }
  say(t("say.start"));
  changed();
}

function dispatch() {
  const next = pending;
  pending = null;
  next.sentAt = performance.now();
  next.sent = socket.send(next.request);
}

function stop() {
  const current = store.live;
  if (!current || isOver(current) || current.stopping) return;
  current.stopping = true;
  if (pending === current || !socket.send({ type: "abort", request_id: current.id })) {
    fail("connection");
  }
  changed();
}

/** Reads the engine's facts from its fragment, and tells the other fragments once it is ready. */
function readEngine() {
  const { engine, ready } = document.getElementById("engine").dataset;
  const was = store.engineReady;
  store.facts = JSON.parse(engine) ?? store.facts;
  store.engineReady = ready === "yes";
  if (store.facts) offerChat(store.facts.chat);
  if (was !== undefined && was !== store.engineReady) {
    say(t(store.engineReady ? "say.ready" : "say.notReady"));
  }
  // The fragment is only swapped when something changed: dtypes and roof may have, too.
  if (was !== undefined && store.engineReady) htmx.trigger(document.body, "engine-ready");
  if (store.engineReady) recovered();
  changed();
}

/** A run ends with its page; a page that comes back from the browser's memory says so, too. */
function leave() {
  fail("left");
  changed();
}

const running = () => Boolean(store.live) && !isOver(store.live);
const status = mountStatus();
const replay = mountReplay();
const keep = mountKeep();
mountAsk({ run, stop });
const kept = keepForm(running);
if (kept.left || kept.again) {
  const text = t(kept.left ? "error.left" : "again.filled");
  setText(document.getElementById("status"), text);
  say(text);
}
addEventListener("pagehide", leave);
mountReach(() => {
  store.engineReady = false;
  say(t("engine.unreachable"));
  changed();
});
onPaint(status.paint);
onPaint(({ run: current }) => {
  root.dataset.state = current?.status ?? "idle";
});
for (const mount of [
  mountWay,
  mountAnswers,
  mountStrip,
  mountText,
  mountCache,
  mountRoofline,
  mountTable,
  mountElsewhere,
  mountPrinted,
  () => mountBefore(kept.again),
]) {
  onPaint(mount());
}
document.body.addEventListener("htmx:afterSettle", ({ target }) => {
  if (target.id === "engine") readEngine();
});
readEngine();
socket.open();
