// A photo with the captions of one or more models, whose attention is moved by hand.

import { element } from "./text.js";
import { mount } from "./gallery.js";
import { Explorer } from "./explorer.js";

// data: what a page is told, whose photos are of one picture, `image`. ask(model, request, signal) promises a record.
export function explore(root, data, ask) {
  const gallery = element("div", "satt-gallery");
  const group = element("div", "satt-group");
  group.append(...data.photos.map((photo, index) => figureOf(photo, data.image, index)));
  gallery.append(group);
  root.querySelectorAll(".satt-gallery, .satt-controls").forEach((old) => old.remove());
  root.append(gallery);
  const cards = mount(root, data);
  return cards.map((card, index) => new Explorer(card, (request, signal) => ask(index, request, signal)));
}

// The figure that a static page has in its HTML.
function figureOf(photo, source, index) {
  const figure = element("figure");
  const main = element("div", "satt-main");
  const stage = element("div", "satt-photo");
  const image = element("img");
  Object.assign(image, { src: source, width: photo.shown[0], height: photo.shown[1], alt: `Photo: ${photo.captions[0].text}` });
  stage.append(image);
  main.append(element("h2", "satt-name", index ? "\u00a0" : photo.name));
  if (photo.model) main.append(element("p", "satt-model", photo.model));
  main.append(stage);
  const body = element("div", "satt-body");
  body.append(main, element("figcaption"));
  figure.append(body);
  return figure;
}
