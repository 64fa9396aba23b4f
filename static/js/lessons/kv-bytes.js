// Bytes of the cache of any model: the server computes; here the task is seen to be done.

import { did } from "./lesson.js";

const place = document.getElementById("bytes");
/** Where the reader began: the first answer of a model, device and number format. */
let from = null;

const same = (one, other) =>
  ["model", "hardware", "kv"].every((name) => one[name] === other[name]);

document.body.addEventListener("htmx:afterSettle", () => {
  const found = place.querySelector(".kv-found")?.dataset;
  if (!found) return;
  const now = { ...found };
  if (!from || !same(from, now)) from = now;
  const doubled = Number(now.context) >= 2 * Number(from.context);
  if (doubled && Number(now.largest) < Number(from.largest)) did("starve");
  if (Number(now.context) < Number(from.context)) from = now;
});
