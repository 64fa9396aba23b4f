// The button that goes from the system's theme to light to dark.

import { setText } from "./dom.js";
import { t } from "./texts.js";

export function mountTheme() {
  const button = document.getElementById("theme");
  const theme = window.firstTokenTheme;
  const show = () => setText(button, t(`theme.${theme.current}`));
  button.addEventListener("click", () => {
    theme.next();
    show();
  });
  button.hidden = false;
  show();
}
