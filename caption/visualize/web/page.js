// The controls above the photos, and the start.
//
// A notebook may show the same output twice, and each comes with this script: every run starts the elements that no run
// has started before. They carry no ids, which could clash.

function makeControls(view, repaint) {
  const controls = element("div", "satt-controls");
  controls.setAttribute("role", "group");
  controls.setAttribute("aria-label", "How attention is drawn");
  const names = Object.keys(view.data.styles);
  const [styleRow, style] = select("satt-style", "Style", names.map((name) => [name, name]));
  const maps = Array.from(view.colourMaps.keys(), (name) => [name, name]);
  const [mapRow, cmap] = select("satt-cmap", "Colours", [["", "of the style"], ...maps]);
  const smooth = element("input", "satt-smooth");
  smooth.type = "checkbox";
  const opacity = element("input", "satt-opacity");
  Object.assign(opacity, { type: "range", min: 0, max: 100 });
  const tell = () => {
    style.value = view.name;
    cmap.value = view.cmap === null ? "" : view.cmap;
    smooth.checked = view.smooth;
    opacity.value = Math.round(100 * view.opacity);
  };
  const on = (control, event, change) => {
    control.addEventListener(event, () => {
      change();
      tell();
      repaint();
    });
  };
  on(style, "change", () => view.setStyle(style.value));
  on(cmap, "change", () => (view.cmap = cmap.value || null));
  on(smooth, "change", () => (view.smooth = smooth.checked));
  on(opacity, "input", () => (view.opacity = opacity.value / 100));
  tell();
  const smoothRow = element("label");
  smoothRow.append(smooth, element("span", "", "Smooth between cells"));
  const opacityRow = element("label");
  opacityRow.append(element("span", "", "Opacity"), opacity);
  controls.append(styleRow, mapRow, smoothRow, opacityRow);
  return controls;
}

const ORDERS = {
  "as given": null,
  "file name": (a, b) => a.name.localeCompare(b.name),
  sentence: (a, b) => a.text.localeCompare(b.text),
  "surest first": (a, b) => b.sure - a.sure,
  "least sure first": (a, b) => a.sure - b.sure,
  "sharpest first": (a, b) => b.peak - a.peak,
};

// Filter and sort the photos of a gallery.
function makeFinder(root, groups, photos) {
  const each = photos.length / groups.length;
  const entries = groups.map((group, index) => {
    const mine = photos.slice(index * each, (index + 1) * each);
    const first = mine[0].captions[0];
    const text = mine.map((photo) => photo.captions[0].text).join(" ");
    const length = Math.max(1, first.words.length);
    // Per word, so that long sentences are not the least sure.
    return { group, index, name: mine[0].name, text, sure: first.log_prob / length, peak: first.high };
  });
  const finder = element("div", "satt-controls satt-finder");
  const filter = element("input", "satt-filter");
  filter.type = "search";
  filter.placeholder = "word or file name";
  const row = element("label", "", "Find ");
  row.append(filter);
  const [sortRow, sort] = select("satt-sort", "Sort", Object.keys(ORDERS).map((name) => [name, name]));
  const count = element("span", "satt-count");
  count.setAttribute("role", "status");
  filter.addEventListener("input", () => {
    const wanted = filter.value.trim().toLowerCase();
    let found = 0;
    for (const { group, name, text } of entries) {
      group.hidden = !`${name} ${text}`.toLowerCase().includes(wanted);
      if (!group.hidden) found++;
    }
    count.textContent = `${found} of ${entries.length} photos`;
  });
  sort.addEventListener("change", () => {
    const order = ORDERS[sort.value] || ((a, b) => a.index - b.index);
    root.querySelector(".satt-gallery").append(...[...entries].sort(order).map(({ group }) => group));
  });
  count.textContent = `${entries.length} photos`;
  finder.append(row, sortRow, count);
  return finder;
}

// In a page of its own, the address names the word that was chosen: "#photo=3&word=5".
function linkOf(number, step, models) {
  const model = models > 1 ? `&model=${(number % models) + 1}` : "";
  return `#photo=${Math.floor(number / models) + 1}&word=${step + 1}${model}`;
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
  const view = new View(data);
  const groups = Array.from(root.querySelectorAll(".satt-group"));
  const alone = document.body.classList.contains("satt-page");
  const models = data.photos.length / groups.length;
  for (const group of groups) {
    // The photo is embedded once for all models.
    const [first, ...others] = group.querySelectorAll(".satt-photo img");
    others.forEach((image) => (image.src = first.src));
  }
  const cards = [];
  const chosen = (card, step) => {
    if (alone) history.replaceState(null, "", linkOf(cards.indexOf(card), step, models));
  };
  root.querySelectorAll("figure").forEach((figure, index) => {
    cards.push(new Card(figure, data.photos[index], view, chosen));
  });
  const cardOf = new Map(cards.map((card) => [card.figure, card]));
  const watcher = new IntersectionObserver(
    (entries) => entries.forEach((entry) => cardOf.get(entry.target).setVisible(entry.isIntersecting)),
    { rootMargin: "400px" },
  );
  cards.forEach((card) => watcher.observe(card.figure));
  window.addEventListener("beforeprint", () => cards.forEach((card) => card.setVisible(true)));
  const gallery = root.querySelector(".satt-gallery");
  gallery.before(makeControls(view, () => cards.forEach((card) => card.repaint())));
  if (groups.length > 1) gallery.before(makeFinder(root, groups, data.photos));
  if (alone) {
    followLink(cards, models);
    window.addEventListener("hashchange", () => followLink(cards, models));
  }
}

document.querySelectorAll(".satt:not([data-ready])").forEach(start);
