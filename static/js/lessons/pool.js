// The slider over the steps of the small cache ends where the run ends; Space goes on.

import { advanceOnSpace } from "./space.js";

const place = document.getElementById("pool");

place.addEventListener("htmx:afterSettle", () => {
  const found = place.querySelector(".pool-found");
  const slider = document.getElementById("pool-at");
  if (found && slider) slider.max = found.dataset.steps;
});

advanceOnSpace(place, "#pool-at");
