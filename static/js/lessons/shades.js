// How weights become ink: the square root, so that small ones can be seen beside a large one.

/** The opacity of a weight from 0 to 1. */
export const shade = (weight) => Math.sqrt(Math.min(1, Math.max(0, weight)));

/** The ink of the page as [red, green, blue], in the theme that is on. */
export function ink(name = "--ink") {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const marker = document.body.appendChild(document.createElement("span"));
  marker.style.setProperty("color", `var(${name})`);
  probe.fillStyle = getComputedStyle(marker).color;
  marker.remove();
  probe.fillRect(0, 0, 1, 1);
  return [...probe.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

/** Calls `then` whenever the page's theme changes, so that a canvas can be painted again. */
export function onTheme(then) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", then);
  const { documentElement } = document;
  new MutationObserver(then).observe(documentElement, { attributeFilter: ["data-theme"] });
}
