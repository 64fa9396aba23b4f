// The bar that replays the run on the page: play, speed, a slider over time, steps by arrow keys.

import { changed, store } from "../store.js";
import { setText } from "../dom.js";
import { t, time } from "../texts.js";
import { Player, timesOf } from "./player.js";

const section = document.getElementById("replay");
const part = (name) => section.querySelector(`[data-${name}]`);
const STEPS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };

/**
 * Mounts the bar. `load(events, document)` offers a run that is over; `document()` gives its saved
 * form once it is needed. While it is played, `store.run` is the player's run. `unload()` takes the
 * bar away.
 */
export function mountReplay() {
  const slider = part("time");
  let player = null;
  let source = null;

  function tell(at, end, playing) {
    slider.max = String(end);
    slider.value = String(at);
    const text = t("replay.at", { at: time(at), end: time(end) });
    slider.setAttribute("aria-valuetext", text);
    setText(part("at"), text);
    setText(part("play"), t(playing ? "replay.pause" : "replay.play"));
    part("back").disabled = at <= 0;
    part("forth").disabled = at >= end;
  }

  function show(moved) {
    if (player !== moved) return;
    store.run = moved.run;
    tell(moved.at, moved.end, moved.playing);
    changed();
  }

  /** The player, made at the first touch: most runs are never played again. */
  function ready() {
    if (player) return player;
    player = new Player(source(), show);
    player.speed = Number(section.querySelector("input[name=speed]:checked").value);
    player.at = player.end;
    store.selected = null;
    return player;
  }

  const toggle = () => (ready().playing ? player.pause() : player.play());
  part("play").addEventListener("click", toggle);
  part("back").addEventListener("click", () => ready().step(-1));
  part("forth").addEventListener("click", () => ready().step(1));
  slider.addEventListener("input", () => {
    ready().pause();
    player.seek(Number(slider.value));
  });
  section.addEventListener("change", ({ target }) => {
    if (target.name === "speed" && player) player.speed = Number(target.value);
  });
  section.addEventListener("keydown", (event) => {
    if (event.target.name === "speed") return;
    const direction = STEPS[event.key];
    if (direction) ready().step(direction);
    else if (event.key === " " && event.target === slider) toggle();
    else return;
    event.preventDefault();
  });

  return {
    load(events, makeDocument) {
      player?.pause();
      player = null;
      source = makeDocument;
      const end = timesOf(events).at(-1);
      tell(end, end, false);
      section.hidden = false;
    },
    unload() {
      player?.pause();
      player = null;
      section.hidden = true;
    },
  };
}
