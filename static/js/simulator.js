// The second scenario comes and goes.

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
