// Elements, and numbers and places in words.

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function button(className, text, label) {
  const made = element("button", className, text);
  made.type = "button";
  if (label) made.setAttribute("aria-label", label);
  return made;
}

export function select(className, label, options) {
  const row = element("label", "", `${label} `);
  const made = element("select", className);
  made.append(...options.map(([value, text]) => Object.assign(element("option", "", text), { value })));
  row.append(made);
  return [row, made];
}

// "rtl" for words of a language that is written from right to left, as told by the first letter; otherwise "ltr".
export function direction(words) {
  return /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u.test(words.join(" ")) ? "rtl" : "ltr";
}

// A number with `digits` decimals and a true minus sign; 0 has none.
export function rounded(value, digits) {
  return Number(value.toFixed(digits)).toFixed(digits).replace("-", "−");
}

export function number(value) {
  return value === null ? "?" : String(Number(value.toPrecision(2))).replace("-", "−");
}

// A probability; "1" only if it is exactly 1.
export function probability(logarithm) {
  const p = Math.exp(logarithm);
  if (p >= 0.9995 && p < 1) return "> 0.999";
  return p < 0.0995 ? number(p) : String(Number(p.toFixed(3)));
}

export function times(multiple) {
  return `${multiple < 99.5 ? multiple.toFixed(1) : Math.round(multiple)}×`;
}

// The largest weight of a word, as the figures state it.
export function peakText(map, values, symbol) {
  const weights = Array.from(values, (u) => map.low + u * (map.high - map.low));
  const peak = weights[peakOf(map, values)];
  if (map.signed) return `${symbol} ${number(peak)}`;
  if (map.even !== null) return `${times(peak / map.even)} even`;
  return map.mean > 0 ? `${times(peak / map.mean)} mean` : `${symbol} ${number(peak)}`;
}

// The cell with the largest weight; of signed weights, with the largest in magnitude.
export function peakOf(map, values) {
  const size = map.signed ? (u) => Math.abs(u - 0.5) : (u) => u;
  let best = 0;
  for (let cell = 1; cell < values.length; cell++) if (size(values[cell]) > size(values[best])) best = cell;
  return best;
}

// Where in the photo a cell lies.
export function region(photo, box, grid, cell) {
  const [left, top, right, bottom] = box;
  const [row, col] = [Math.floor(cell / grid[1]), cell % grid[1]];
  const x = (left + ((col + 0.5) / grid[1]) * (right - left)) / photo.size[0];
  const y = (top + ((row + 0.5) / grid[0]) * (bottom - top)) / photo.size[1];
  if (x < 0 || y < 0 || x > 1 || y > 1) return "margin beyond the photo";
  const vertical = ["upper", "middle", "lower"][Math.min(2, Math.floor(3 * y))];
  const horizontal = ["left", "centre", "right"][Math.min(2, Math.floor(3 * x))];
  return vertical === "middle" && horizontal === "centre" ? "centre" : `${vertical} ${horizontal}`;
}
