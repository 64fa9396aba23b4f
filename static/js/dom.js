// Small helpers. Text always goes in through textContent.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with a class and text. */
export function el(tag, className = "", text = null) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== null) node.textContent = text;
  return node;
}

/** An SVG element with attributes. */
export function svg(tag, attributes = {}) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** A cell of a table that holds a text or an element. */
export function tableCell(content, name = "") {
  const cell = el("td", name);
  cell.append(content);
  return cell;
}

const isCell = (content) => content instanceof HTMLTableCellElement;

/** A row of a table: its head, then its cells. What is no cell yet becomes one, of a number. */
export function tableRow(head, cells) {
  const row = el("tr");
  const first = isCell(head) ? head : el("th");
  if (first !== head) first.append(head);
  first.scope = "row";
  row.append(first, ...cells.map((cell) => (isCell(cell) ? cell : tableCell(cell, "n"))));
  return row;
}

/** Sets a text only where it changed, so that nothing is painted or announced twice. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** The value in the middle; null of an empty list. */
export function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

export const sum = (values) => values.reduce((total, value) => total + value, 0);
