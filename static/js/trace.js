// A trace is posted: too large a one is told before it is sent.

const form = document.getElementById("trace-form");
const tooLarge = document.getElementById("too-large");
const MOST_OTHER_FIELDS = 4096;

form.addEventListener("htmx:configRequest", (event) => {
  const size = new URLSearchParams({ trace: form.elements.trace.value }).toString().length;
  tooLarge.hidden = size + MOST_OTHER_FIELDS <= Number(form.dataset.most);
  if (!tooLarge.hidden) event.preventDefault();
});
