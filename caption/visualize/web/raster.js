// A map as pixels: over the photo, over the small photos of the strip, and in the picture that is saved.

import { element } from "./text.js";
import { LEVELS } from "./colours.js";

// For each of `pixels` along one side: the nearest cell, or -1 where the model has not seen the photo; the two cells
// between whose centres it lies, and the share of the second. The share is that of Hermite's interpolation: exact at the
// centres, and smooth. The grid goes from start to end, the part that the model has seen from first to last.
function along(pixels, length, [start, end], [first, last], cells) {
  const axis = {
    cell: new Int16Array(pixels),
    before: new Int16Array(pixels),
    after: new Int16Array(pixels),
    part: new Float32Array(pixels),
  };
  for (let i = 0; i < pixels; i++) {
    const at = ((i + 0.5) / pixels) * length;
    const place = ((at - start) / (end - start)) * cells;
    const before = Math.floor(place - 0.5);
    const distance = place - 0.5 - before;
    axis.cell[i] = at >= first && at < last ? clamped(Math.floor(place), cells) : -1;
    axis.before[i] = clamped(before, cells);
    axis.after[i] = clamped(before + 1, cells);
    axis.part[i] = distance * distance * (3 - 2 * distance);
  }
  return axis;
}

// For each of `pixels` along one side the share of every cell in the Gaussian mean of those around it. Beyond its ends
// a map is continued by its mirror image; beyond the part that is seen, its outermost pixels are repeated.
function means(pixels, length, [start, end], cells, deviation) {
  const reach = Math.ceil(4 * deviation);
  return Array.from({ length: pixels }, (_, i) => {
    const at = (((i + 0.5) / pixels) * length - start) / (end - start);
    const place = Math.min(Math.max(at, 0), 1) * cells - 0.5;
    const shares = new Float32Array(cells);
    let sum = 0;
    for (let other = Math.floor(place) - reach; other <= place + reach + 1; other++) {
      const share = Math.exp(-0.5 * ((place - other) / deviation) ** 2);
      const turned = ((other % (2 * cells)) + 2 * cells) % (2 * cells);
      shares[Math.min(turned, 2 * cells - 1 - turned)] += share;
      sum += share;
    }
    return shares.map((share) => share / sum);
  });
}

function product(shares, values) {
  let sum = 0;
  for (let cell = 0; cell < shares.length; cell++) sum += shares[cell] * values[cell];
  return sum;
}

// The nearest existing cell.
export function clamped(cell, cells) {
  return Math.min(Math.max(cell, 0), cells - 1);
}

// The cell [row, column] of a map at a place in the photo, or the nearest one.
export function cellAt({ box, grid }, x, y) {
  const row = Math.floor(((y - box[1]) / (box[3] - box[1])) * grid[0]);
  const col = Math.floor(((x - box[0]) / (box[2] - box[0])) * grid[1]);
  return [clamped(row, grid[0]), clamped(col, grid[1])];
}

const decoded = new WeakMap();

// u of every cell of all words of a map, decoded once.
export function decode(map) {
  if (!decoded.has(map)) decoded.set(map, decodedBytes(map));
  return decoded.get(map);
}

function decodedBytes(map) {
  const root = (q) => (q - 128) / 127;
  const toU = map.signed ? (q) => (1 + root(q) * Math.abs(root(q))) / 2 : (q) => (q / 255) ** 2;
  return Float32Array.from(atob(map.weights), (byte) => toU(byte.charCodeAt(0)));
}

export class Raster {
  constructor(width, height) {
    this.canvas = element("canvas");
    this.width = this.canvas.width = width;
    this.height = this.canvas.height = height;
    this.context = this.canvas.getContext("2d");
    this.pixels = this.context.createImageData(width, height);
    this.values = new Uint32Array(this.pixels.data.buffer);
  }

  // size: (width, height) of the photo; seen: of the caption.
  place(size, { box, grid }, seen, blur) {
    const key = [size, box, grid, seen, blur].join();
    if (this.placed === key) return;
    this.placed = key;
    const [left, top, right, bottom] = box;
    this.cols = grid[1];
    this.across = along(this.width, size[0], [left, right], [seen[0], seen[2]], grid[1]);
    this.down = along(this.height, size[1], [top, bottom], [seen[1], seen[3]], grid[0]);
    if (!blur) return;
    this.across.means = means(this.width, size[0], [left, right], grid[1], blur);
    this.down.means = means(this.height, size[1], [top, bottom], grid[0], blur);
  }

  // values: u of one word; map: its scale.
  paint(values, map, view) {
    const scale = view.scale(map);
    const table = view.table(scale);
    const part = (map.high - map.low) / (scale.high - scale.low); // of the scale, for one u
    const first = (map.low - scale.low) / (scale.high - scale.low);
    const { unseen, hatch, smooth } = view;
    for (let y = 0, at = 0; y < this.height; y++) {
      const row = this.down.cell[y];
      const mixed = view.blur ? this.mixedRows(values, y) : null;
      for (let x = 0; x < this.width; x++, at++) {
        const col = this.across.cell[x];
        if (row < 0 || col < 0) this.values[at] = (x + y) % 10 < 2 ? hatch : unseen;
        else {
          const u = mixed
            ? product(this.across.means[x], mixed)
            : smooth
              ? this.between(values, x, y)
              : values[row * this.cols + col];
          this.values[at] = table[Math.round(Math.min(Math.max(first + part * u, 0), 1) * (LEVELS - 1))];
        }
      }
    }
    this.context.putImageData(this.pixels, 0, 0);
  }

  // The Gaussian mean of the rows around a pixel's, for every column.
  mixedRows(values, y) {
    const mixed = new Float32Array(this.cols);
    this.down.means[y].forEach((share, row) => {
      for (let col = 0; col < this.cols; col++) mixed[col] += share * values[row * this.cols + col];
    });
    return mixed;
  }

  between(values, x, y) {
    const { before, after, part } = this.across;
    const upper = this.down.before[y] * this.cols;
    const lower = this.down.after[y] * this.cols;
    const over = values[upper + before[x]] * (1 - part[x]) + values[upper + after[x]] * part[x];
    const under = values[lower + before[x]] * (1 - part[x]) + values[lower + after[x]] * part[x];
    return over * (1 - this.down.part[y]) + under * this.down.part[y];
  }
}

// Draw a photo on a context with a part of its colours, from 0, in grey, to 1; like the filter on the page.
export function drawPhoto(context, photo, width, height, saturation) {
  context.drawImage(photo, 0, 0, width, height);
  if (saturation === 1) return;
  const pixels = context.getImageData(0, 0, width, height);
  const { data } = pixels;
  for (let at = 0; at < data.length; at += 4) {
    const grey = 0.2126 * data[at] + 0.7152 * data[at + 1] + 0.0722 * data[at + 2];
    for (let channel = at; channel < at + 3; channel += 1) data[channel] = grey + (data[channel] - grey) * saturation;
  }
  context.putImageData(pixels, 0, 0);
}

// Where a cell begins and ends along one side; the outermost cells end where the part that the model has seen ends.
export function edges(cell, cells, [start, end], [first, last]) {
  const edge = (number) => {
    if (number === 0) return first;
    if (number === cells) return last;
    return Math.min(Math.max(start + ((end - start) * number) / cells, first), last);
  };
  return [edge(cell), edge(cell + 1)];
}

// Frame the cell and cross the point that was chosen, on a picture of this width.
export function markChoice(context, width, photo, caption, cell, point) {
  const { box, grid, seen } = caption;
  const scale = width / photo.size[0];
  const path = new Path2D();
  if (cell) {
    const [top, bottom] = edges(cell[0], grid[0], [box[1], box[3]], [seen[1], seen[3]]).map((y) => y * scale);
    const [left, right] = edges(cell[1], grid[1], [box[0], box[2]], [seen[0], seen[2]]).map((x) => x * scale);
    path.rect(left, top, right - left, bottom - top);
  }
  if (point) {
    const [x, y] = point.map((place) => place * scale);
    path.addPath(new Path2D(`M${x - 8} ${y}H${x + 8}M${x} ${y - 8}V${y + 8}`));
  }
  // Black under white: one of the two shows on any photo.
  for (const [colour, line] of [["#000", 4], ["#fff", 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.stroke(path);
  }
}
