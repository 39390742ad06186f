// The figures of a page as cards, with the controls above or below them.

import { View } from "./colours.js";
import { Card } from "./card.js";
import { makeControls, makeFinder } from "./controls.js";

const narrow = window.matchMedia("(max-width: 40rem)");

// Make a card of each figure in `root`, in the order of data.photos.
export function mount(root, data, chosen = () => {}) {
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
  window.addEventListener("beforeprint", () => cards.forEach((card) => card.setVisible(true)));
  placeControls(root, makeControls(view, () => cards.forEach((card) => card.repaint())));
  if (groups.length > 1) root.querySelector(".satt-gallery").before(makeFinder(root, groups, data.photos));
  return cards;
}

// Above the photos; on a phone below them, so that the first photo comes before what it is drawn with.
function placeControls(root, controls) {
  const gallery = root.querySelector(".satt-gallery");
  const place = () => {
    if (narrow.matches) gallery.after(controls);
    else (root.querySelector(".satt-finder") || gallery).before(controls);
    controls.open = !narrow.matches;
  };
  narrow.addEventListener("change", place);
  place();
}
