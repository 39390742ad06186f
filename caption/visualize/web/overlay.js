// The canvas over one photo.

import { Raster, markChoice } from "./raster.js";

const MOVE = 180; // milliseconds from one word's map to the next
const stillness = window.matchMedia("(prefers-reduced-motion: reduce)");

export class Overlay {
  constructor(stage, photo, view) {
    this.stage = stage;
    this.photo = photo;
    this.view = view;
  }

  // Only photos in view have a canvas: a gallery may hold hundreds of them.
  setVisible(visible) {
    this.visible = visible;
    if (visible) this.paint();
    else if (this.raster) {
      this.raster.canvas.remove();
      this.raster = null;
    }
  }

  allocate() {
    // The browser enlarges a small photo; cells have sharp edges there, too.
    const sharper = Math.max(1, Math.round(480 / Math.max(...this.photo.shown)));
    this.raster = new Raster(this.photo.shown[0] * sharper, this.photo.shown[1] * sharper);
    this.raster.canvas.setAttribute("aria-hidden", "true");
    this.raster.canvas.classList.add("satt-off");
    this.stage.append(this.raster.canvas);
  }

  // Glide to a word's map, or show the bare photo with null.
  move(caption, map, values, cell, point) {
    cancelAnimationFrame(this.frame);
    const from = this.map === map ? this.values : null;
    Object.assign(this, { caption, map, cell, point });
    if (values === null) {
      this.values = null;
      if (this.raster) this.raster.canvas.classList.add("satt-off");
      this.stage.classList.remove("satt-pale");
      return;
    }
    const jump = !from || !this.visible || stillness.matches;
    const start = performance.now();
    const glide = (now) => {
      const part = jump ? 1 : Math.min(1, Math.max(0, (now - start) / MOVE));
      const eased = part * (2 - part);
      this.values = part === 1 ? values : values.map((value, i) => from[i] + (value - from[i]) * eased);
      this.paint();
      if (part < 1) this.frame = requestAnimationFrame(glide);
    };
    glide(start);
  }

  paint() {
    if (!this.values || !this.visible) return;
    if (!this.raster) this.allocate();
    this.stage.classList.toggle("satt-pale", this.view.saturation < 1);
    this.stage.style.setProperty("--grey", 1 - this.view.saturation);
    this.raster.place(this.photo.size, this.map, this.caption.seen, this.view.blur);
    this.raster.canvas.classList.remove("satt-off");
    this.raster.paint(this.values, this.map, this.view);
    markChoice(this.raster.context, this.raster.width, this.photo, this.caption, this.cell, this.point);
  }
}
