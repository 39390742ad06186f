// The figures of a page as cards, with the controls above or below them.

import { element } from "./text.js";
import { View } from "./colours.js";
import { Card } from "./card.js";
import { makeControls, makeFinder } from "./controls.js";

const narrow = window.matchMedia("(max-width: 40rem)");

// Make a card of each figure in `root`, in the order of data.photos. Aborting `signal` removes all references to the
// cards from outside `root`, so that other photos can take their place.
export function mount(root, data, chosen = () => {}, signal = undefined) {
  const view = new View(data);
  const groups = Array.from(root.querySelectorAll(".satt-group"));
  const cards = Array.from(root.querySelectorAll("figure"), (figure, index) => {
    return new Card(figure, data.photos[index], view, chosen);
  });
  const cardOf = new Map(cards.map((card) => [card.figure, card]));
  const watcher = new IntersectionObserver(
    (entries) => entries.forEach((entry) => cardOf.get(entry.target).setVisible(entry.isIntersecting)),
    { rootMargin: "400px" },
  );
  cards.forEach((card) => watcher.observe(card.figure));
  if (signal) signal.addEventListener("abort", () => watcher.disconnect() || cards.forEach((card) => card.stop()));
  window.addEventListener("beforeprint", () => cards.forEach((card) => card.setVisible(true)), { signal });
  placeControls(root, makeControls(view, () => cards.forEach((card) => card.repaint())), signal);
  if (groups.length > 1) root.querySelector(".satt-gallery").before(makeFinder(root, groups, data.photos));
  return cards;
}

// Above the photos; on a phone below them, so that the first photo is at the top.
function placeControls(root, controls, signal) {
  const gallery = root.querySelector(".satt-gallery");
  const place = () => {
    if (narrow.matches) gallery.after(controls);
    else (root.querySelector(".satt-finder") || gallery).before(controls);
    controls.open = !narrow.matches;
  };
  narrow.addEventListener("change", place, { signal });
  place();
}

// The figure that a static page has in its HTML.
export function figureOf(photo, source, index) {
  const figure = element("figure");
  const main = element("div", "satt-main");
  const stage = element("div", "satt-photo");
  const image = element("img");
  Object.assign(image, { src: source, width: photo.shown[0], height: photo.shown[1], alt: `Photo: ${photo.captions[0].text}` });
  stage.append(image);
  main.append(element("h2", "satt-name", index ? "\u00a0" : photo.name));
  if (photo.model) main.append(element("p", "satt-model", photo.model));
  if (photo.question) main.append(element("p", "satt-model", `Question: ${photo.question}`));
  main.append(stage);
  const body = element("div", "satt-body");
  body.append(main, element("figcaption"));
  figure.append(body);
  return figure;
}
