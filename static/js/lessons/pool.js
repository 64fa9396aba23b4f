// The slider over the steps of the small cache ends where the run ends; Space goes on.

const place = document.getElementById("pool");

place.addEventListener("htmx:afterSettle", () => {
  const found = place.querySelector(".pool-found");
  const slider = document.getElementById("pool-at");
  if (found && slider) slider.max = found.dataset.steps;
});

place.addEventListener("keydown", (event) => {
  if (event.key !== " " || event.target.id !== "pool-at") return;
  event.preventDefault();
  const slider = event.target;
  slider.value = Number(slider.value) < Number(slider.max) ? Number(slider.value) + 1 : 1;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
});
