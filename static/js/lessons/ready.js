// Whether the engine can be asked, as the fragment at the top of the page says.

const engine = () => document.getElementById("engine");

/** What the page knows of the engine and its model (`layers`, `hidden`, …); null before that. */
export const facts = () => JSON.parse(engine().dataset.engine ?? "null");

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
