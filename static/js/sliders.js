// Sliders say their value in words at once, to eyes and to screen readers. One that stands beside
// a number field (data-for) moves that field, and follows it.

const written = new Intl.NumberFormat(document.documentElement.lang);

function valueOf(slider) {
  const place = Number(slider.value);
  if (slider.dataset.scale !== "log2") return place;
  const value = 2 ** place;
  const whole = partner(slider)?.step !== "any";
  return whole || value >= 10 ? Math.round(value) : Number(value.toPrecision(2));
}

function placeOf(slider, value) {
  return slider.dataset.scale === "log2" ? Math.log2(Math.max(value, 2 ** Number(slider.min))) : value;
}

function partner(slider) {
  return slider.dataset.for ? document.getElementById(slider.dataset.for) : null;
}

function tell(slider) {
  const number = partner(slider);
  const text = written.format(number ? Number(number.value) : valueOf(slider));
  slider.setAttribute("aria-valuetext", text);
  const output = slider.form?.querySelector(`output[for="${slider.id}"]`);
  if (output) output.textContent = text;
}

document.addEventListener(
  "input",
  ({ target }) => {
    if (target.matches?.('input[type="range"]')) {
      const number = partner(target);
      if (number) number.value = String(valueOf(target));
      tell(target);
    } else if (target.matches?.('input[type="number"]')) {
      for (const slider of document.querySelectorAll(`input[data-for="${target.id}"]`)) {
        slider.value = String(placeOf(slider, Number(target.value)));
        tell(slider);
      }
    }
  },
  true,
);

for (const slider of document.querySelectorAll('input[type="range"]')) {
  const number = partner(slider);
  if (number) slider.value = String(placeOf(slider, Number(number.value)));
  tell(slider);
}
