// The maps of all words beside the photo, small. For the pointer only: the words themselves serve the keyboard.

import { direction, element, peakText } from "./text.js";
import { Raster, drawPhoto } from "./raster.js";

const THUMB = 240; // pixels of the longer side

// (width, height) of a photo with `longest` pixels on its longer side.
export function smallSize(photo, longest) {
  const scale = longest / Math.max(...photo.shown);
  return photo.shown.map((side) => Math.max(1, Math.round(side * scale)));
}

// A photo in a small size, over which maps are drawn.
export class SmallPhoto {
  constructor(image, [width, height], view) {
    this.base = element("canvas");
    Object.assign(this.base, { width, height });
    drawPhoto(this.base.getContext("2d", { willReadFrequently: true }), image, width, height, view.saturation);
    this.raster = new Raster(width, height);
  }

  place(photo, map, seen, view) {
    this.raster.place(photo.size, map, seen, view.blur);
  }

  drawAlone(canvas) {
    [canvas.width, canvas.height] = [this.base.width, this.base.height];
    canvas.getContext("2d").drawImage(this.base, 0, 0);
  }

  draw(canvas, values, map, view) {
    this.raster.paint(values, map, view);
    this.drawAlone(canvas);
    canvas.getContext("2d").drawImage(this.raster.canvas, 0, 0);
  }
}

export class Strip {
  constructor(card) {
    this.card = card;
    this.node = element("div", "satt-strip");
    this.node.setAttribute("aria-hidden", "true");
    this.thumbs = [];
    const stepOf = (event) => {
      const thumb = event.target.closest(".satt-thumb");
      return thumb ? this.thumbs.indexOf(thumb) : null;
    };
    this.node.addEventListener("pointerover", (event) => {
      const step = stepOf(event);
      if (step !== null && event.pointerType === "mouse" && step !== card.step) card.halt(step);
    });
    this.node.addEventListener("pointerleave", () => card.back());
    this.node.addEventListener("click", (event) => {
      const step = stepOf(event);
      if (step !== null) card.halt(step, { link: true });
    });
  }

  // Only strips in view have pixels: a gallery may have thousands of words.
  setVisible(visible) {
    this.visible = visible;
    if (visible) this.draw();
    else for (const thumb of this.thumbs) thumb.firstChild.width = 0;
  }

  // Show the words of another caption, or of another map.
  show() {
    const { caption, photo } = this.card;
    this.size = smallSize(photo, THUMB);
    this.thumbs = caption.words.map((word) => {
      const thumb = element("div", "satt-thumb");
      const canvas = element("canvas");
      canvas.style.aspectRatio = this.size.join(" / ");
      thumb.append(canvas, element("span", "", word), element("small"));
      return thumb;
    });
    this.node.dir = direction(caption.words);
    this.node.replaceChildren(...this.thumbs);
    this.refresh();
  }

  // After the next frame, so that the words and the large map do not wait for the small ones.
  refresh() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => setTimeout(() => this.visible && this.draw()));
  }

  draw() {
    const { caption, map, photo, view, image } = this.card;
    if (!image.complete || !image.naturalWidth) {
      image.addEventListener("load", () => this.refresh(), { once: true });
      return;
    }
    const small = new SmallPhoto(image, this.size, view);
    small.place(photo, map, caption.seen, view);
    this.thumbs.forEach((thumb, step) => {
      const values = this.card.valuesOf(step);
      small.draw(thumb.firstChild, values, map, view);
      thumb.lastChild.textContent = peakText(map, values, this.card.symbol).replace(" even", "");
    });
  }

  select(step) {
    this.thumbs.forEach((thumb, index) => thumb.classList.toggle("satt-current", index === step));
  }
}
