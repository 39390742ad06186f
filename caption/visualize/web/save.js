// The picture that is on the screen, with its sentence, as a file.

import { element } from "./text.js";
import { Raster, drawPhoto, markChoice } from "./raster.js";

const LEAST = 960; // pixels of its width

export function savePicture(card) {
  const { photo, image, caption, step, map, view } = card;
  const scale = Math.max(1, LEAST / photo.shown[0]);
  const [width, height] = photo.shown.map((side) => Math.round(side * scale));
  const font = Math.round(width / 32);
  const canvas = element("canvas");
  canvas.width = width;
  const context = canvas.getContext("2d");
  const set = (bold) => (context.font = `${bold ? "bold " : ""}${font}px sans-serif`);
  set(true);
  const lines = wrapped(context, caption.words, width - 2 * font);
  canvas.height = height + Math.round((lines.length * 1.5 + 1) * font);
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, canvas.height);
  drawPhoto(context, image, width, height, step >= 0 ? view.saturation : 1);
  if (step >= 0) {
    const raster = new Raster(width, height);
    raster.place(photo.size, map, caption.seen, view.blur);
    raster.paint(card.valuesOf(step), map, view);
    markChoice(raster.context, width, photo, caption, ...card.choice(step));
    context.drawImage(raster.canvas, 0, 0);
  }
  lines.forEach((line, number) => {
    let x = font;
    for (const [word, index] of line) {
      set(index === step);
      context.fillStyle = index === step ? "#a33000" : "#222";
      context.fillText(word, x, height + (number * 1.5 + 1.5) * font);
      set(true);
      x += context.measureText(`${word} `).width;
    }
  });
  const link = element("a");
  link.href = canvas.toDataURL("image/png");
  const name = photo.name.replace(/\.[^.]*$/, "").replace(/[^\p{L}\p{N}_-]+/gu, "_");
  link.download = `${name}_${step < 0 ? "photo" : step + 1}.png`;
  link.click();
}

// Words with their places, broken into lines.
function wrapped(context, words, room) {
  const lines = [[]];
  let used = 0;
  words.forEach((word, index) => {
    const width = context.measureText(`${word} `).width;
    if (used + width > room && lines[lines.length - 1].length) {
      lines.push([]);
      used = 0;
    }
    lines[lines.length - 1].push([word, index]);
    used += width;
  });
  return lines;
}
