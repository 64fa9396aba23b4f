// The second scenario comes and goes; the address always says what is shown, so that it can be
// kept or sent.

const form = document.getElementById("scenario");
const compare = document.getElementById("compare");
const second = document.getElementById("second");

compare?.addEventListener("input", () => {
  second.hidden = !compare.checked;
  second.disabled = !compare.checked;
});

// A form with a wrong field is not sent: say so, instead of leaving old numbers in silence.
const unsent = document.getElementById("unsent");
form.addEventListener("input", () => {
  unsent.hidden = form.checkValidity();
});

document.addEventListener("htmx:afterSwap", ({ target }) => {
  if (target.id !== "answer") return;
  const query = new URLSearchParams(new FormData(form));
  history.replaceState(null, "", `?${query}`);
});
