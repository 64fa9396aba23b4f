// Texts in the reader's language, sent by the server as JSON in a data attribute.

const all = JSON.parse(document.getElementById("texts").dataset.texts);
const language = document.documentElement.lang;
const plural = new Intl.PluralRules(language);

/** The text of `key` with `{name}` filled in. Plural texts choose their form by `n`. */
export function t(key, values = {}) {
  let text = all[key];
  if (text === undefined) throw new Error(`no text named ${key}`);
  if (Array.isArray(text)) text = text[plural.select(values.n) === "one" ? 0 : 1];
  return text.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? whole(value) : String(value);
  });
}

/** Sentences one after the other; Chinese sets no space between them. */
export const sentences = (list) => list.filter(Boolean).join(language.startsWith("zh") ? "" : " ");

// Chinese sets nothing at all between the parts of a list of units.
const list = new Intl.ListFormat(language, { type: "conjunction" });

/** Parts of a sentence one after the other, as the language lists them. */
export const listed = (parts) => list.format(parts);

/** Whether there is a text of that name. */
export const has = (key) => all[key] !== undefined;

const integers = new Intl.NumberFormat(language, { maximumFractionDigits: 0 });

/** An integer with its thousands grouped. */
export const whole = (value) => integers.format(value);

const formats = new Map();

function fixed(value, digits) {
  if (!formats.has(digits)) {
    const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    formats.set(digits, new Intl.NumberFormat(language, options));
  }
  return formats.get(digits).format(value);
}

/** Three significant digits, two below one, without an exponent. */
export function significant(value) {
  if (value === 0) return "0";
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  return fixed(value, Math.min(4, Math.max(0, (magnitude < 0 ? 1 : 2) - magnitude)));
}

/** Two significant digits without trailing zeros: 2.4, 60, 1,200. */
const about = (value) =>
  new Intl.NumberFormat(language, { maximumSignificantDigits: 2 }).format(value);

/** How many times: one decimal below a hundred, none above. */
export const times = (ratio) => fixed(ratio, ratio < 99.95 ? 1 : 0);

/** Milliseconds as [value, unit]: 0.042 ms, 9.81 ms, 312 ms, 12.3 s. */
export function timeParts(ms) {
  return ms >= 10000 ? [significant(ms / 1000), "s"] : [significant(ms), "ms"];
}

const join = ([value, unit]) => `${value}\u00a0${unit}`;

/** Milliseconds as one text. */
export const time = (ms) => join(timeParts(ms));

const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];

function scaled(value, unit) {
  const step = value > 0 ? Math.min(6, Math.max(0, Math.floor(Math.log10(value) / 3))) : 0;
  return join([significant(value / 1000 ** step), PREFIXES[step] + unit]);
}

export const bytes = (value) => scaled(value, "B");
export const flops = (value) => scaled(value, "FLOP");
export const rate = (value) => scaled(value, "FLOP/s");
export const bandwidth = (value) => scaled(value, "B/s");

/** A share of one as a percentage. */
export const percent = (value) => {
  const p = value * 100;
  if (p > 0 && p < 0.1) return "<\u202f0.1%";
  return `${p < 10 ? about(p) : whole(p)}%`;
};

const SEGMENTER = typeof Intl.Segmenter === "function" ? new Intl.Segmenter(language) : null;

/** The characters as a reader sees them (grapheme clusters): an emoji of several parts is one. */
export const graphemes = (text) =>
  SEGMENTER ? Array.from(SEGMENTER.segment(text), ({ segment }) => segment) : [...text];

/** How many characters a reader would count. */
export const characters = (text) => graphemes(text).length;

/** A token's text with its spaces and line ends made visible. */
export const visible = (piece) =>
  piece.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥");
