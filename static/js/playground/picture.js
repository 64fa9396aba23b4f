// The strip and the roofline as one picture that stands alone: SVG, or PNG drawn from it.

import { svg } from "../dom.js";
import { ttft, usualGap } from "../run.js";
import { store } from "../store.js";
import { t, time } from "../texts.js";
import { save } from "./download.js";

const WIDTH = 720;
const MARGIN = 24;
const STRIP = { top: 84, height: 60 };
const ROOF_TOP = 208;
const PIXELS = 2; // of the PNG, for each unit of the SVG
/** What the style sheets decide, written into the picture as attributes. */
const LOOKS = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin",
  "paint-order", "vector-effect", "font-family", "font-size", "font-weight", "display",
];

/** A copy that looks the same without any style sheet. */
function copyOf(source) {
  const copy = source.cloneNode(true);
  const from = [source, ...source.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, i) => {
    const looks = getComputedStyle(node);
    for (const name of LOOKS) to[i].setAttribute(name, looks.getPropertyValue(name));
    to[i].removeAttribute("class");
  });
  copy.removeAttribute("display"); // the one for narrow windows may be hidden on the page
  return copy;
}

function words(text, x, y, looks) {
  const node = svg("text", { x, y, ...looks });
  node.textContent = text;
  return node;
}

function draw(run) {
  const page = getComputedStyle(document.body);
  const strip = document.querySelector("#strip svg.times");
  const roof = document.querySelector("#roofline svg.roofline.wide");
  const box = roof.viewBox.baseVal;
  const inner = WIDTH - 2 * MARGIN;
  const roofHeight = (inner / box.width) * box.height;
  const height = ROOF_TOP + roofHeight + MARGIN;
  const ink = { fill: page.color, "font-family": page.fontFamily, "font-size": 14 };
  const picture = svg("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    width: WIDTH,
    height,
    viewBox: `0 0 ${WIDTH} ${height}`,
  });
  const bar = copyOf(strip);
  for (const [name, value] of Object.entries({
    x: MARGIN, y: STRIP.top, width: inner, height: STRIP.height, overflow: "visible",
  })) {
    bar.setAttribute(name, value);
  }
  const chart = copyOf(roof);
  for (const [name, value] of Object.entries({ x: MARGIN, y: ROOF_TOP, width: inner, height: roofHeight })) {
    chart.setAttribute(name, value);
  }
  const end = Number(strip.dataset.span);
  const itl = usualGap(run);
  const measured = t("picture.measured", {
    ttft: ttft(run) === null ? "—" : time(ttft(run)),
    itl: itl === null ? "—" : time(itl),
  });
  const place = t("picture.where", {
    model: run.facts.model_name,
    machine: run.facts.device_name,
    date: new Date(run.endedAt).toISOString().slice(0, 10),
  });
  picture.append(
    svg("rect", { width: WIDTH, height, fill: page.backgroundColor }),
    words(measured, MARGIN, 36, { ...ink, "font-size": 18, "font-weight": 650 }),
    words(place, MARGIN, 60, ink),
    bar,
    words(t("picture.legend"), MARGIN, ROOF_TOP - 12, { ...ink, "font-size": 13 }),
    words("0", MARGIN, STRIP.top + STRIP.height + 20, ink),
    words(time(end), WIDTH - MARGIN, STRIP.top + STRIP.height + 20, { ...ink, "text-anchor": "end" }),
    chart,
  );
  return { text: new XMLSerializer().serializeToString(picture), height };
}

/** Downloads the picture of the run on the page; `form` is "svg" or "png". */
export async function savePicture(form) {
  const { text, height } = draw(store.run);
  if (form === "svg") return save(new Blob([text], { type: "image/svg+xml" }), "first-token-run.svg");
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH * PIXELS;
  canvas.height = Math.ceil(height * PIXELS);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return save(blob, "first-token-run.png");
}
