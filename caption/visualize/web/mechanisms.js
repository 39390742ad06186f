// The page of tools/compare_attention: mechanisms look at the same scene for the same word, side by side.

import { button, element, peakText, probability, select } from "./text.js";
import { View } from "./colours.js";
import { decode } from "./raster.js";
import { Card } from "./card.js";
import { makeControls } from "./controls.js";
import { figureOf, placeControls } from "./gallery.js";
import { SmallPhoto, smallSize } from "./strip.js";

const PANEL = 192; // pixels of a panel's longer side
const SHIFTS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };

class Gallery {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    this.view = new View(this.data);
    this.scene = 0;
    this.word = 0;
    this.images = this.data.scenes.map(({ image, sentence }) => Object.assign(new Image(), { src: image, alt: sentence }));
    this.status = element("p", "satt-status");
    this.status.setAttribute("role", "status");
    this.words = element("div", "satt-words");
    this.words.setAttribute("role", "toolbar");
    this.words.setAttribute("aria-label", "Words of the sentence");
    this.words.addEventListener("keydown", (event) => this.key(event));
    this.top = element("div", "satt-top");
    this.top.append(this.makeScenes(), this.words, this.status);
    this.gallery = element("div", "satt-gallery");
    this.makePanels();
    this.dialog = this.makeDialog();
    root.append(this.makeFinder(), this.top, this.gallery, this.dialog);
    placeControls(root, makeControls(this.view, () => this.draw()));
    this.watcher = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "200px" });
    this.panels.forEach(({ node }) => this.watcher.observe(node));
    Promise.all(this.images.map((image) => image.decode())).then(() => this.follow());
    window.addEventListener("hashchange", () => this.follow());
  }

  // The scenes, as radio buttons with pictures.
  makeScenes() {
    const scenes = element("fieldset", "satt-scenes");
    scenes.append(element("legend", "", "Scene"));
    this.radios = this.data.scenes.map(({ sentence }, index) => {
      const label = element("label");
      const radio = Object.assign(element("input"), { type: "radio", name: "scene", value: index });
      radio.addEventListener("change", () => this.show(index, null));
      label.title = sentence;
      label.append(radio, this.images[index].cloneNode());
      scenes.append(label);
      return radio;
    });
    return scenes;
  }

  makeFinder() {
    const finder = element("div", "satt-controls satt-finder");
    const families = this.data.families.map(({ name }) => [name, name]);
    const [familyRow, family] = select("satt-family", "Family", [["", "all"], ...families]);
    const filter = Object.assign(element("input", "satt-filter"), { type: "search", placeholder: "name or idea" });
    const row = element("label", "", "Find ");
    row.append(filter);
    const narrow = () => {
      const wanted = filter.value.trim().toLowerCase();
      for (const panel of this.panels) {
        const { name, title } = panel;
        const found = `${name} ${title}`.toLowerCase().includes(wanted);
        panel.node.hidden = !found || Boolean(family.value && family.value !== panel.family);
      }
      for (const { section, members } of this.sections) section.hidden = members.every(({ node }) => node.hidden);
      this.rove(this.panels.find(({ node }) => !node.hidden));
      this.tell();
    };
    filter.addEventListener("input", narrow);
    family.addEventListener("change", narrow);
    finder.append(familyRow, row);
    return finder;
  }

  makePanels() {
    this.sections = this.data.families.map(({ name: family, idea, members }) => {
      const section = element("section", "satt-kin");
      const heading = element("h2", "", `${family[0].toUpperCase()}${family.slice(1)}`);
      if (idea) heading.append(element("small", "", idea));
      const grid = element("div", "satt-panels");
      const panels = members.map((name) => this.makePanel(name, family));
      grid.append(...panels.map(({ node }) => node));
      section.append(heading, grid);
      this.gallery.append(section);
      return { section, members: panels };
    });
    this.panels = this.sections.flatMap(({ members }) => members);
    this.gallery.addEventListener("keydown", (event) => this.walk(event));
    this.rove(this.panels[0]);
  }

  makePanel(name, family) {
    const { title, scenes } = this.data.mechanisms[name];
    const node = button("satt-panel");
    const panel = { node, name, title, family, scenes, canvas: element("canvas"), told: element("small") };
    node.title = title;
    const label = element("span");
    label.append(...name.split(/(?<=_)/).flatMap((part) => [part, element("wbr")])); // lines end behind "_"
    node.append(panel.canvas, label, panel.told);
    node.addEventListener("click", () => this.enlarge(panel));
    node.addEventListener("focus", () => this.rove(panel));
    return panel;
  }

  // Tab reaches one panel, from which the arrow keys go on.
  rove(panel) {
    if (!panel) return;
    this.panels.forEach(({ node }) => (node.tabIndex = -1));
    panel.node.tabIndex = 0;
  }

  walk(event) {
    const shown = this.panels.filter(({ node }) => !node.hidden);
    const at = shown.findIndex(({ node }) => node === event.target);
    const goals = { Home: 0, End: shown.length - 1 };
    if (event.key in SHIFTS) goals[event.key] = at + SHIFTS[event.key];
    if (at < 0 || !shown[goals[event.key]]) return;
    event.preventDefault();
    shown[goals[event.key]].node.focus();
  }

  // The scene and the word that the address names: "#scene=2&word=5".
  follow() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const scene = Number(asked.get("scene")) - 1;
    this.show(this.data.scenes[scene] ? scene : 0, asked.has("word") ? Number(asked.get("word")) - 1 : null);
  }

  // word: null for the first one that names an object.
  show(scene, word) {
    const { words, boxes } = this.data.scenes[scene];
    this.scene = scene;
    this.radios[scene].checked = true;
    this.chips = words.map((each, index) => {
      const chip = button("satt-word", each);
      chip.addEventListener("click", () => this.choose(index));
      chip.addEventListener("pointerover", (event) => event.pointerType === "mouse" && this.select(index));
      return chip;
    });
    this.words.replaceChildren(...this.chips);
    this.words.onpointerleave = () => this.select(this.chosen);
    const named = Number(Object.keys(boxes)[0] || 0);
    this.choose(words[word] === undefined ? named : word, word !== null);
  }

  key(event) {
    const last = this.chips.length - 1;
    const goals = { ArrowLeft: this.word - 1, ArrowRight: this.word + 1, Home: 0, End: last };
    if (!(event.key in goals) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.choose(Math.max(0, Math.min(goals[event.key], last)));
    this.chips[this.word].focus();
  }

  choose(word, link = true) {
    this.chosen = word;
    this.select(word);
    if (link) history.replaceState(null, "", `#scene=${this.scene + 1}&word=${word + 1}`);
  }

  select(word) {
    this.word = word;
    this.chips.forEach((chip, index) => {
      chip.setAttribute("aria-pressed", String(index === word));
      chip.tabIndex = index === word ? 0 : -1;
    });
    this.draw();
  }

  seen(entries) {
    const panels = new Map(this.panels.map((panel) => [panel.node, panel]));
    entries.forEach(({ target, isIntersecting }) => (panels.get(target).visible = isIntersecting));
    this.draw();
  }

  // Only panels in view are drawn.
  draw() {
    if (!this.chips) return;
    const key = [this.scene, this.word, this.view.name, this.view.cmap, this.view.smooth, this.view.opacity].join();
    const size = this.sizeOf(this.scene);
    const small = new SmallPhoto(this.images[this.scene], size, this.view);
    for (const panel of this.panels) {
      if (!panel.visible || panel.key === key) continue;
      panel.key = key;
      this.drawPanel(panel, small);
    }
    this.tell();
  }

  sizeOf(scene) {
    const { naturalWidth, naturalHeight } = this.images[scene];
    return smallSize({ shown: [naturalWidth, naturalHeight] }, PANEL);
  }

  drawPanel(panel, small) {
    const { photo, log_probs: logs, hits } = panel.scenes[this.scene];
    const p = `p ${probability(logs[this.word])}`;
    const hit = hits[this.word];
    if (photo) {
      const map = photo.captions[0];
      const cells = map.grid[0] * map.grid[1];
      const values = decode(map).subarray(this.word * cells, (this.word + 1) * cells);
      small.place(photo, map, map.seen, this.view);
      small.draw(panel.canvas, values, map, this.view);
      panel.told.textContent = `${p}, ${peakText(map, values)}${hit ? " ✓" : ""}`;
    } else {
      small.drawAlone(panel.canvas);
      panel.told.textContent = `${p}, no map`;
    }
    this.drawBoxes(panel.canvas);
    const where = hit === undefined ? "" : hit ? ", looks most at the object" : ", does not look most at the object";
    panel.node.setAttribute("aria-label", `${panel.name}: ${panel.told.textContent.replace(" ✓", "")}${where}`);
  }

  drawBoxes(canvas) {
    const context = canvas.getContext("2d");
    const scale = canvas.width / this.images[this.scene].naturalWidth;
    for (const [left, top, right, bottom] of this.data.scenes[this.scene].boxes[this.word] || []) {
      for (const [colour, line] of [["#000", 4], ["#3f3", 2]]) {
        Object.assign(context, { strokeStyle: colour, lineWidth: line });
        context.strokeRect(left * scale, top * scale, (right - left) * scale, (bottom - top) * scale);
      }
    }
  }

  // How many of those that are shown look at the object.
  tell() {
    const shown = this.panels.filter(({ node }) => !node.hidden);
    const hits = shown.map(({ scenes }) => scenes[this.scene].hits[this.word]).filter((hit) => hit !== undefined);
    const word = `“${this.data.scenes[this.scene].words[this.word]}”`;
    const count = `${shown.length} mechanism${shown.length === 1 ? "" : "s"}`;
    this.status.textContent = hits.length
      ? `${word}: ${hits.filter(Boolean).length} of ${hits.length} with a map look most at the object that it names.`
      : `${word} names no object; ${count}.`;
  }

  makeDialog() {
    const dialog = element("dialog", "satt-dialog");
    const close = button("satt-close", "Close");
    close.addEventListener("click", () => dialog.close());
    this.large = element("div");
    dialog.append(close, this.large);
    return dialog;
  }

  // A mechanism large, with all words of the sentence.
  enlarge(panel) {
    const { photo, said } = panel.scenes[this.scene];
    this.large.replaceChildren(element("h2", "", panel.name), element("p", "", panel.title));
    if (photo) {
      const figure = figureOf(photo, this.data.scenes[this.scene].image, 0);
      this.large.append(figure);
      this.dialog.showModal();
      const card = new Card(figure, photo, this.view, () => {});
      card.setVisible(true);
      card.select(this.chosen);
      card.pinned = card.step;
    } else {
      this.large.append(element("p", "", "It has no map: every word reads the same vector."));
      this.dialog.showModal();
    }
    this.large.append(element("p", "satt-own", `Its own caption of the scene: “${said}”`));
  }
}

document.querySelectorAll(".satt-mechanisms").forEach((root) => new Gallery(root));
