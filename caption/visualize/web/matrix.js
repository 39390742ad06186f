// The alignment matrix: a row for each word, with its weights of all regions side by side; and the self-attention of a
// Transformer decoder, where a column is a word fed so far. For the pointer only: the words themselves serve the keyboard.

import { element } from "./text.js";
import { decode } from "./raster.js";

export class Matrix {
  constructor(card) {
    this.card = card;
    this.node = element("details", "satt-beam satt-alignment");
    this.body = element("div", "satt-matrices");
    this.body.setAttribute("aria-hidden", "true");
    this.node.append(element("summary", "", "The alignment matrix"), this.body);
    const stepOf = (event) => {
      const row = event.target.closest(".satt-of-word");
      return row ? Number(row.dataset.step) : null;
    };
    this.body.addEventListener("pointerover", (event) => {
      const step = stepOf(event);
      if (step !== null && event.pointerType === "mouse" && step !== card.step) card.halt(step);
    });
    this.body.addEventListener("pointerleave", () => card.back());
    this.body.addEventListener("click", (event) => {
      const step = stepOf(event);
      if (step !== null) card.halt(step, { link: true });
    });
    this.node.addEventListener("toggle", () => this.show());
  }

  // Show another caption, or another of its maps. Only matrices that are open have cells.
  show() {
    const { caption, map } = this.card;
    this.node.hidden = !caption.words.length;
    if (!this.node.open) return this.body.replaceChildren();
    const [rows, cols] = map.grid;
    const regions = this.make(map, `${rows} × ${cols} regions, row after row`, Array(rows).fill(""));
    const fed = ["(start)", ...caption.words.slice(0, -1)];
    this.body.replaceChildren(regions, ...caption.self_attention.map((head) => this.make(head, head.name, fed)));
    this.select(this.card.step);
  }

  // One matrix; each of `names` is below an equal part of its width.
  make(map, title, names) {
    const figure = element("figure");
    figure.append(element("figcaption", "", title));
    const size = map.grid[0] * map.grid[1];
    const ink = getComputedStyle(this.node).color;
    const { above, below } = this.card.view.data;
    this.card.caption.words.forEach((word, step) => {
      const row = element("div", "satt-of-word");
      row.dataset.step = step;
      const canvas = element("canvas");
      [canvas.width, canvas.height] = [size, 1];
      const context = canvas.getContext("2d");
      decode(map).subarray(step * size, (step + 1) * size).forEach((u, cell) => {
        const weight = map.low + u * (map.high - map.low);
        context.fillStyle = map.signed ? `rgb(${weight < 0 ? below : above})` : ink;
        context.globalAlpha = Math.min(1, Math.abs(weight) / map.drawn.high);
        context.fillRect(cell, 0, 1, 1);
      });
      row.append(element("span", "", word), canvas);
      figure.append(row);
    });
    const columns = element("div", "satt-columns");
    columns.append(...names.map((name) => element("span", "", name)));
    figure.append(columns);
    return figure;
  }

  select(step) {
    for (const row of this.body.querySelectorAll(".satt-of-word")) {
      row.classList.toggle("satt-current", Number(row.dataset.step) === step);
    }
  }
}
