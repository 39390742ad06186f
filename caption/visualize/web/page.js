// The static page. Its HTML has a figure for each photo with its sentence, readable without a script.
//
// A notebook may show the same output, with this script, twice: each run starts the elements that no run before it has
// started. They have no ids, which could clash.

import { mount } from "./gallery.js";

// In a page of its own, the address names the chosen word: "#photo=3&word=5".
function linkOf(index, step, models) {
  const model = models > 1 ? `&model=${(index % models) + 1}` : "";
  return `#photo=${Math.floor(index / models) + 1}&word=${step + 1}${model}`;
}

function followLink(cards, models) {
  const asked = new URLSearchParams(location.hash.slice(1));
  const card = cards[(Number(asked.get("photo")) - 1) * models + Number(asked.get("model") || 1) - 1];
  const step = Number(asked.get("word")) - 1;
  if (!card || !(step >= -1 && step < card.caption.words.length)) return;
  card.halt(step);
  card.figure.scrollIntoView({ block: "nearest" });
}

function start(root) {
  root.dataset.ready = "true";
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const groups = Array.from(root.querySelectorAll(".satt-group"));
  const models = data.photos.length / groups.length;
  for (const group of groups) {
    // The photo is embedded once for all models.
    const [first, ...others] = group.querySelectorAll(".satt-photo img");
    others.forEach((image) => (image.src = first.src));
  }
  const alone = document.body.classList.contains("satt-page");
  const cards = mount(root, data, (card, step) => {
    if (alone) history.replaceState(null, "", linkOf(cards.indexOf(card), step, models));
  });
  if (!alone) return;
  followLink(cards, models);
  window.addEventListener("hashchange", () => followLink(cards, models));
}

document.querySelectorAll(".satt:not([data-ready])").forEach(start);
