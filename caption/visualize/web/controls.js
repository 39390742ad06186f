// The controls above the photos: how attention is drawn, and the finder of a gallery.

import { element, select } from "./text.js";

export function makeControls(view, repaint) {
  const controls = element("details", "satt-controls satt-drawing");
  const row = element("div", "satt-row");
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", "How attention is drawn");
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
  row.append(styleRow, mapRow, smoothRow, opacityRow);
  controls.append(element("summary", "", "How attention is drawn"), row);
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
export function makeFinder(root, groups, photos) {
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
