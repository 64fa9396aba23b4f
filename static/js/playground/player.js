// Plays a recorded run: every event at the time that the engine measured for it.

import { isOver, take } from "../run.js";
import { emptyRun } from "./saved.js";

/** When each event happened, in ms since the engine received the request; never going back. */
export function timesOf(events) {
  const own = {
    accepted: ({ tokenize_ms: ms }) => ms,
    step: ({ start_ms: from, time_ms: ms }) => from + ms,
    token: ({ time_ms: ms }) => ms,
  };
  let last = 0;
  return events.map((event) => {
    last = Math.max(last, own[event.type]?.(event) ?? last);
    return last;
  });
}

export class Player {
  #frame = null;
  #before = 0;

  /** `onMove(player)` is called whenever the place in time, or playing, has changed. */
  constructor(document, onMove) {
    this.document = document;
    this.times = timesOf(document.events);
    this.end = this.times.at(-1);
    this.moments = [...new Set(this.times)];
    this.speed = 1;
    this.playing = false;
    this.onMove = onMove;
    this.#restart();
  }

  #restart() {
    this.run = emptyRun(this.document);
    this.next = 0;
    this.at = 0;
  }

  /** Goes to a place in time. Going back begins anew: a run only ever grows. */
  seek(ms) {
    const to = Math.min(this.end, Math.max(0, ms));
    if (to < this.at || isOver(this.run)) this.#restart();
    this.at = to;
    this.run.at = to;
    const { events } = this.document;
    while (this.next < events.length && this.times[this.next] <= to) {
      take(this.run, { ...events[this.next] });
      this.next += 1;
    }
    this.onMove(this);
  }

  /** Goes to the next moment at which something happened, or with -1 to the one before. */
  step(direction) {
    this.pause();
    const to =
      direction > 0
        ? this.moments.find((moment) => moment > this.at)
        : this.moments.findLast((moment) => moment < this.at);
    this.seek(to ?? (direction > 0 ? this.end : 0));
  }

  play() {
    if (this.playing) return;
    if (this.at >= this.end) this.#restart();
    this.playing = true;
    this.#before = performance.now();
    this.onMove(this);
    this.#frame = requestAnimationFrame(this.#tick);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    cancelAnimationFrame(this.#frame);
    this.onMove(this);
  }

  // Time goes on while a page is hidden: what happened meanwhile comes at once.
  #tick = (now) => {
    const passed = Math.max(0, now - this.#before) * this.speed;
    this.#before = now;
    if (this.at + passed >= this.end) this.playing = false;
    this.seek(this.at + passed);
    if (this.playing) this.#frame = requestAnimationFrame(this.#tick);
  };
}
