// The address says what is shown, so that it can be kept or sent: a form with data-address writes
// its fields there when its answer has come.

document.addEventListener("htmx:afterSwap", ({ detail }) => {
  const form = detail.requestConfig?.elt;
  if (!form?.matches?.("form[data-address]")) return;
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
  history.replaceState(null, "", `?${query}`);
});
