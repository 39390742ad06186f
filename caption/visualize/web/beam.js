// The beam of a search as a tree: which hypotheses were alive at each step, and where the model looked for each.

import { button, element, probability, rounded } from "./text.js";
import { decode } from "./raster.js";
import { SmallPhoto, smallSize } from "./strip.js";

const SMALL = 160; // pixels of the longer side of the picture beside the text on a hypothesis

export class Beam {
  constructor(card) {
    this.card = card;
    this.node = element("details", "satt-beam");
    this.summary = element("summary");
    this.tree = element("div", "satt-tree");
    this.tree.setAttribute("role", "group");
    this.tree.setAttribute("aria-label", "Hypotheses of the search: arrow keys go up, down and along a step");
    this.scroll = element("div", "satt-tree-scroll");
    this.scroll.append(this.tree);
    this.told = element("div", "satt-told");
    this.small = element("canvas");
    this.small.setAttribute("aria-hidden", "true");
    this.small.width = 0;
    this.text = element("p");
    this.told.append(this.small, this.text);
    this.note = element("p", "satt-note");
    this.node.append(this.summary, this.scroll, this.told, this.note);
    this.listen();
    this.show();
  }

  listen() {
    const placeOf = (event) => {
      const chip = event.target.closest(".satt-node");
      return chip ? this.places.get(chip) : null;
    };
    this.tree.addEventListener("pointerover", (event) => {
      const place = placeOf(event);
      if (place && event.pointerType === "mouse") this.point(...place);
    });
    this.tree.addEventListener("pointerleave", () => this.back());
    this.tree.addEventListener("focusin", (event) => placeOf(event) && this.point(...placeOf(event)));
    this.tree.addEventListener("focusout", (event) => this.tree.contains(event.relatedTarget) || this.back());
    this.tree.addEventListener("keydown", (event) => this.key(event));
    this.node.addEventListener("toggle", () => this.build());
    new ResizeObserver(() => this.drawEdges()).observe(this.tree);
  }

  // Show another search.
  show() {
    const { beam } = this.card.photo;
    this.beam = beam;
    this.node.hidden = !beam || !beam.count;
    this.built = false;
    if (this.node.hidden) return;
    this.summary.textContent = `The search: a beam of ${beam.width}`;
    this.build();
  }

  // Only trees that are open have nodes: a gallery may have hundreds of them.
  build() {
    if (this.built || this.node.hidden || !this.node.open) return;
    this.built = true;
    const { count, steps, maps } = this.beam;
    this.told.hidden = !steps.length;
    this.told.classList.toggle("satt-mapless", !maps);
    this.note.textContent = steps.length
      ? "A row for each step, the most probable hypothesis first; below a word, log p of the sentence so far. Blue: the caption. Dashed: dropped at the next step. Orange bar: the share of attention that lay elsewhere than the caption's at this step."
      : `The search kept ${count} hypotheses, too many to draw.`;
    if (steps.length && !maps) this.note.textContent += " There was no room for their maps.";
    this.places = new Map();
    this.chips = steps.map((nodes, step) => nodes.map((node, place) => this.chip(node, step, place)));
    this.edges = element("div", "satt-edges");
    this.edges.setAttribute("aria-hidden", "true");
    this.tree.replaceChildren(this.edges, ...this.chips.flat());
    this.current = null;
    this.choose(this.card.photo.captions.indexOf(this.card.caption));
  }

  chip(node, step, place) {
    const chip = button("satt-node");
    chip.style.gridRow = step + 1;
    chip.style.gridColumn = place + 1;
    chip.append(element("span", "", node.word), element("small", "", number2(node.total)));
    chip.setAttribute("aria-label", `${this.sentence(step, place)}; ${this.fate(step, place)}`);
    chip.classList.toggle("satt-ended", node.ended);
    chip.classList.toggle("satt-dropped", !node.ended && !this.hasChildren(step, place) && step + 1 < this.beam.steps.length);
    if (node.moved_share) {
      const bar = element("span", "satt-moved-share");
      bar.style.setProperty("--share", node.moved_share);
      chip.append(bar);
    }
    this.places.set(chip, [step, place]);
    return chip;
  }

  // Mark the path of the caption on the screen: the best one or another candidate.
  choose(index) {
    if (!this.built || !this.chips.length) return;
    this.path = this.beam.paths[index] || [];
    this.chips.forEach((row, step) => {
      row.forEach((chip, place) => chip.classList.toggle("satt-best", this.path[step] === place));
    });
    this.rove(0, this.path[0] || 0);
    this.drawEdges();
    this.back();
  }

  hasChildren(step, place) {
    return (this.beam.steps[step + 1] || []).some((node) => node.parent === place);
  }

  // The places of a hypothesis and those that it continues, the first step first.
  line(step, place) {
    const line = [];
    for (let at = place; at !== null; step -= 1) {
      line.unshift(at);
      at = this.beam.steps[step][at].parent;
    }
    return line;
  }

  sentence(step, place) {
    return this.line(step, place)
      .map((at, row) => this.beam.steps[row][at].word)
      .join(" ");
  }

  fate(step, place) {
    const { steps, paths } = this.beam;
    const { ended } = steps[step][place];
    const caption = paths.findIndex((path) => path[step] === place);
    const whole = caption >= 0 && paths[caption].length === step + 1;
    if (whole) return `this is ${caption ? `caption ${caption + 1}` : "the caption"}${ended ? "" : ", unfinished"}`;
    if (caption >= 0) return caption ? `caption ${caption + 1} goes on from here` : "the caption goes on from here";
    if (ended) return "it ended here, but another one is better";
    if (this.hasChildren(step, place)) return "it goes on";
    return step + 1 < steps.length ? "it is dropped at the next step" : "the search stopped, because it could no longer win";
  }

  // Show where the model looked for a hypothesis, on the photo and beside the text on it.
  point(step, place) {
    const { steps, maps } = this.beam;
    const node = steps[step][place];
    const line = this.line(step, place);
    this.current = [step, place];
    this.chips.forEach((row, at) => row.forEach((chip, other) => chip.classList.toggle("satt-line", line[at] === other)));
    const share = node.moved_share ? `; ${Math.round(100 * node.moved_share)} % of its attention lay elsewhere than the caption's` : "";
    const p = node.log_prob === null ? "" : `p ${probability(node.log_prob)}, `;
    const text = `“${this.sentence(step, place)}”: ${p}log p so far ${number2(node.total)}; ${this.fate(step, place)}${share}`;
    this.text.textContent = text;
    if (!maps) return;
    const size = maps.grid[0] * maps.grid[1];
    const values = decode(maps).subarray(node.map_index * size, (node.map_index + 1) * size);
    this.card.showOther(maps, values, text);
    const { photo, caption, image, view } = this.card;
    const small = new SmallPhoto(image, smallSize(photo, SMALL), view);
    small.place(photo, maps, caption.seen, view);
    small.draw(this.small, values, maps, view);
  }

  // Back to the hypothesis that has the focus, or to the word of the caption.
  back() {
    const focused = this.places && this.places.get(document.activeElement);
    if (focused) return this.point(...focused);
    this.text.textContent = "Point at a hypothesis, tap it or use the arrow keys to see where the model looked for it.";
    if (!this.current) return;
    this.current = null;
    this.small.width = 0;
    this.chips.flat().forEach((chip) => chip.classList.remove("satt-line"));
    this.card.select(this.card.step);
  }

  key(event) {
    const place = this.places.get(event.target);
    if (!place || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const [step, at] = place;
    const { steps } = this.beam;
    const last = this.path.length - 1;
    const child = step + 1 < steps.length ? steps[step + 1].findIndex((node) => node.parent === at) : -1;
    const goals = {
      ArrowLeft: [step, at - 1],
      ArrowRight: [step, at + 1],
      ArrowUp: [step - 1, steps[step][at].parent],
      ArrowDown: [step + 1, child],
      Home: [0, this.path[0] || 0],
      End: [last, this.path[last]],
    };
    if (!(event.key in goals)) return;
    event.preventDefault();
    event.stopPropagation(); // a notebook would move to another cell
    const goal = goals[event.key];
    if (this.chips[goal[0]] && this.chips[goal[0]][goal[1]]) this.rove(...goal).focus();
  }

  // Tab reaches one node, from which the arrow keys go on.
  rove(step, place) {
    this.chips.flat().forEach((chip) => (chip.tabIndex = -1));
    const chip = this.chips[step][place];
    chip.tabIndex = 0;
    return chip;
  }

  // From each hypothesis a line to the one that it continues.
  drawEdges() {
    if (!this.built || !this.chips.length) return;
    const paths = [];
    this.beam.steps.forEach((nodes, step) => {
      nodes.forEach(({ parent }, place) => {
        if (parent === null) return;
        const [from, to] = [this.chips[step - 1][parent], this.chips[step][place]];
        const middle = (chip) => chip.offsetLeft + chip.offsetWidth / 2;
        const [top, bottom] = [from.offsetTop + from.offsetHeight, to.offsetTop];
        const bend = (top + bottom) / 2;
        const [x, goal] = [middle(from), middle(to)];
        const best = this.path[step] === place && this.path[step - 1] === parent;
        const path = `<path class="satt-edge${best ? "-best" : ""}" d="M${x} ${top}C${x} ${bend} ${goal} ${bend} ${goal} ${bottom}"/>`;
        if (best) paths.push(path);
        else paths.unshift(path);
      });
    });
    // The markup has only numbers. The parser needs no SVG namespace, which would be an address in this page.
    this.edges.innerHTML = `<svg>${paths.join("")}</svg>`;
  }
}

function number2(value) {
  return value === null ? "?" : rounded(value, 2);
}
