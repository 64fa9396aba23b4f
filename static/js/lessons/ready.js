// Whether the engine can be asked, as the fragment at the top of the page says.

const engine = () => document.getElementById("engine");

/** Whether the engine is ready now. */
export const isReady = () => engine().dataset.ready === "yes";

/** Calls `then(ready)` now, and whenever the engine comes or goes. */
export function onReady(then) {
  let was = isReady();
  then(was);
  document.body.addEventListener("htmx:afterSettle", ({ target }) => {
    if (target.id !== "engine" || isReady() === was) return;
    was = isReady();
    then(was);
  });
}
