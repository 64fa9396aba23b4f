// Space on a slider over steps: one step on, and from the last one to the first.

/** `place` holds the slider, or is it; `selector` tells it from other sliders there. */
export function advanceOnSpace(place, selector = "input") {
  place.addEventListener("keydown", (event) => {
    if (event.key !== " " || !event.target.matches(selector)) return;
    event.preventDefault();
    const slider = event.target;
    slider.value = Number(slider.value) < Number(slider.max) ? Number(slider.value) + 1 : 1;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
