// Sliders say their value in words at once, to eyes and to screen readers.

const written = new Intl.NumberFormat(document.documentElement.lang);

function valueOf(slider) {
  const place = Number(slider.value);
  return slider.dataset.scale === "log2" ? 2 ** place : place;
}

function tell(slider) {
  const text = written.format(valueOf(slider));
  slider.setAttribute("aria-valuetext", text);
  const output = slider.form?.querySelector(`output[for="${slider.id}"]`);
  if (output) output.textContent = text;
}

function sliders() {
  return document.querySelectorAll('input[type="range"]');
}

document.addEventListener("input", ({ target }) => {
  if (target.matches?.('input[type="range"]')) tell(target);
});

for (const slider of sliders()) tell(slider);
