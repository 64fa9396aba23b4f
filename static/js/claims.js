// While a claim is being checked: how long it has taken so far, beside what it usually takes. What
// went wrong on the way to the server is said where the verdict would stand.

const EVERY_MS = 1000;
const timers = new WeakMap();

const isCheck = (target) => target instanceof HTMLButtonElement && target.closest(".claim");

function failed(claim) {
  const problem = document.createElement("p");
  problem.className = "warn";
  problem.textContent = claim.dataset.lost;
  claim.querySelector(".finding").replaceChildren(problem);
}

function started(button) {
  const claim = button.closest(".claim");
  const line = claim.querySelector(".claim-time");
  const bar = claim.querySelector("progress");
  const from = performance.now();
  bar.hidden = false;
  const show = () => {
    const seconds = Math.floor((performance.now() - from) / 1000);
    line.textContent = line.dataset.soFar.replace("{n}", seconds);
    bar.value = Math.min(seconds, bar.max);
  };
  show();
  timers.set(button, setInterval(show, EVERY_MS));
}

function ended(button, successful) {
  const claim = button.closest(".claim");
  const line = claim.querySelector(".claim-time");
  clearInterval(timers.get(button));
  line.textContent = line.dataset.usual;
  claim.querySelector("progress").hidden = true;
  if (!successful) failed(claim);
  // A button that was disabled meanwhile lost the focus; whoever pressed it by keyboard goes on here.
  if (document.activeElement === document.body) button.focus({ preventScroll: true });
}

document.body.addEventListener("htmx:beforeRequest", ({ target }) => {
  if (isCheck(target)) started(target);
});
document.body.addEventListener("htmx:afterRequest", ({ target, detail }) => {
  if (isCheck(target)) ended(target, detail.successful);
  else if (!detail.successful && target.matches(".claim .finding")) failed(target.closest(".claim"));
});
