// The page that sets two saved runs side by side.

import { get, Problem } from "../api.js";
import { setText } from "../dom.js";
import { compare } from "./compare.js";
import { runOf } from "./saved.js";

const place = document.getElementById("comparison");
const { a, b } = place.dataset;

async function show() {
  const [first, second] = await Promise.all(
    [a, b].map(async (id) => runOf((await get(`/api/v1/runs/${id}`)).run)),
  );
  compare(place, first, second);
}

show().catch((error) => {
  if (!(error instanceof Problem)) throw error;
  setText(place.querySelector("p"), error.message);
});
