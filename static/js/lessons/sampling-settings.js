// The four settings as sliders, each with its value in words, and settings that go together.

import { setText } from "../dom.js";
import { t, whole } from "../texts.js";

const TOP_K = [0, 1000, 500, 200, 100, 50, 40, 20, 10, 5, 3, 2, 1];

const decimals = new Intl.NumberFormat(document.documentElement.lang, { maximumFractionDigits: 2 });

/** Slider position to value, and value to words; the first position of each cut is "off". */
const KINDS = {
  temperature: { value: (at) => at / 20, words: (value) => (value ? decimals.format(value) : t("sampling.greedy")) },
  topK: { value: (at) => TOP_K[at], words: (value) => (value ? whole(value) : t("sampling.off")) },
  topP: { value: (at) => (100 - at) / 100, words: (value) => (value < 1 ? decimals.format(value) : t("sampling.off")) },
  minP: { value: (at) => at / 100, words: (value) => (value ? decimals.format(value) : t("sampling.off")) },
};

/** `onChange(settings)` is called at once and after every move. */
export function mountSettings(section, onChange) {
  const sliders = new Map(
    Object.keys(KINDS).map((name) => [name, section.querySelector(`input[data-setting="${name}"]`)]),
  );
  const values = () =>
    Object.fromEntries([...sliders].map(([name, slider]) => [name, KINDS[name].value(Number(slider.value))]));

  function tell() {
    const settings = values();
    for (const [name, slider] of sliders) {
      const words = KINDS[name].words(settings[name]);
      slider.setAttribute("aria-valuetext", words);
      setText(section.querySelector(`output[for="${slider.id}"]`), words);
    }
    onChange(settings);
  }

  for (const slider of sliders.values()) slider.addEventListener("input", tell);
  for (const button of section.querySelectorAll("[data-preset]")) {
    button.addEventListener("click", () => {
      const places = button.dataset.preset.split(" ");
      [...sliders.values()].forEach((slider, i) => (slider.value = places[i]));
      tell();
    });
  }
  tell();
  return { values };
}
