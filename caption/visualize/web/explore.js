// A photo with the captions of one or more models, whose attention is moved by hand.

import { element } from "./text.js";
import { figureOf, mount } from "./gallery.js";
import { Explorer } from "./explorer.js";

// data: the page's data; all its photos show one picture, `image`. ask(model, request, signal): a promise of a record.
// gone: aborted when another photo takes the place of this one.
export function explore(root, data, ask, gone) {
  const gallery = element("div", "satt-gallery");
  const group = element("div", "satt-group");
  group.append(...data.photos.map((photo, index) => figureOf(photo, data.image, index)));
  gallery.append(group);
  root.querySelectorAll(".satt-gallery, .satt-controls").forEach((old) => old.remove());
  root.append(gallery);
  const cards = mount(root, data, undefined, gone);
  const explorers = cards.map((card, index) => new Explorer(card, (request, signal) => ask(index, request, signal)));
  gone.addEventListener("abort", () => explorers.forEach((explorer) => explorer.cancel()));
  return explorers;
}
