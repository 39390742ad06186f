// One photo with the words of one model.

import { button, direction, element, number, peakOf, peakText, probability, region, rounded, times } from "./text.js";
import { LEVELS } from "./colours.js";
import { cellAt, decode } from "./raster.js";
import { Overlay } from "./overlay.js";
import { Strip } from "./strip.js";
import { Beam } from "./beam.js";
import { Matrix } from "./matrix.js";
import { savePicture } from "./save.js";

const PACE = 900; // milliseconds per word when playing

export class Card {
  constructor(figure, record, view, chosen) {
    const photo = { ...record }; // `update` changes it
    Object.assign(this, { figure, photo, view, chosen });
    this.pinned = null; // the word to return to when the pointer leaves; null for none
    this.marked = () => {}; // called when another word is on the screen
    const stage = figure.querySelector(".satt-photo");
    stage.style.setProperty("--ratio", photo.size[0] / photo.size[1]);
    this.stage = stage;
    this.image = stage.querySelector("img");
    this.overlay = new Overlay(stage, photo, view);
    this.words = element("div", "satt-words");
    this.words.setAttribute("role", "toolbar");
    this.words.setAttribute("aria-label", "Words of the caption");
    this.play = button("satt-play", "▶ Play");
    this.save = button("satt-save", "Save as PNG");
    this.save.addEventListener("click", () => savePicture(this));
    this.status = element("p", "satt-status");
    this.status.setAttribute("role", "status");
    this.others = element("p", "satt-others");
    this.remarks = element("div", "satt-remarks");
    this.strip = new Strip(this);
    const tools = element("div", "satt-tools");
    tools.append(this.play, this.save);
    const caption = figure.querySelector("figcaption");
    caption.textContent = "";
    caption.append(this.words, this.remarks, this.status, this.others, this.makeGate(), tools, this.makeMapChoice(), this.makeScale());
    this.beam = new Beam(this);
    this.matrix = new Matrix(this);
    caption.append(this.beam.node, this.matrix.node);
    if (photo.captions.length > 1) this.beam.node.before(this.makeChoice());
    for (const [count, what] of [[photo.left_out, "captions"], [photo.maps_left_out, "maps"]]) {
      if (count) caption.append(element("p", "satt-note", `${count} more ${what} are left out here.`));
    }
    figure.querySelector(".satt-body").append(this.strip.node);
    this.listen();
    this.show(0);
  }

  // Show another caption of the same photo, on the same word and map.
  update(photo) {
    const name = this.mapSelect.value;
    Object.assign(this.photo, photo);
    if (this.candidates) this.candidates.remove();
    if (photo.captions.length > 1) this.beam.node.before(this.makeChoice());
    this.beam.show();
    this.show(0, Math.min(this.pinned, photo.captions[0].words.length - 1));
    const map = Array.from(this.mapSelect.options).findIndex((option) => option.value === name);
    if (map > 0) this.showMap((this.mapSelect.selectedIndex = map));
  }

  setVisible(visible) {
    this.overlay.setVisible(visible);
    this.strip.setVisible(visible);
  }

  makeGate() {
    this.gate = element("div", "satt-gate");
    this.gateLabel = element("span", "", "gate β");
    this.meter = element("span", "satt-meter");
    this.meter.setAttribute("role", "meter");
    this.meter.setAttribute("aria-label", "gate β, how much this word used the image");
    this.meter.setAttribute("aria-valuemin", "0");
    this.meter.setAttribute("aria-valuemax", "1");
    this.meter.append(element("span"));
    this.gate.append(this.gateLabel, this.meter, element("small", "", "how much the word used the image"));
    return this.gate;
  }

  // The single maps of a caption: heads, hops, levels.
  makeMapChoice() {
    this.mapChoice = element("label", "satt-map", "Map ");
    this.mapSelect = element("select");
    this.mapSelect.addEventListener("change", () => this.showMap(this.mapSelect.selectedIndex));
    this.mapChoice.append(this.mapSelect);
    return this.mapChoice;
  }

  makeScale() {
    const scale = element("p", "satt-scale");
    this.ramp = element("canvas");
    this.ramp.width = 256;
    this.ramp.height = 1;
    this.ramp.setAttribute("aria-hidden", "true");
    this.scaleText = element("span");
    scale.append(this.ramp, this.scaleText);
    return scale;
  }

  // The other captions of the search, as radio buttons.
  makeChoice() {
    const name = `satt-${Math.random()}`; // radio buttons of one name exclude each other
    const choice = (this.candidates = element("fieldset", "satt-choice"));
    choice.append(element("legend", "", "Captions, best first"));
    this.photo.captions.forEach((caption, index) => {
      const label = element("label");
      const radio = element("input");
      radio.type = "radio";
      radio.name = name;
      radio.checked = index === 0;
      radio.addEventListener("change", () => this.show(index));
      const end = caption.finished ? "" : " (unfinished)";
      label.append(radio, element("span", "", (caption.text || "(no words)") + end));
      if (caption.log_prob !== null) {
        label.append(element("small", "", `log p ${rounded(caption.log_prob, 2)}`));
      }
      choice.append(label);
    });
    return choice;
  }

  show(index, step = null) {
    this.caption = this.photo.captions[index];
    const { words, gates, maps } = this.caption;
    const chips = words.map((word, step) => this.makeChip(word, gates ? gates[step] : null));
    const plain = this.makeChip("photo", null);
    plain.classList.add("satt-plain");
    plain.title = "The photo alone";
    this.chips = [plain, ...chips];
    this.words.dir = direction(words);
    this.words.replaceChildren(...this.chips);
    this.remarks.replaceChildren(...this.caption.remarks.map((remark) => element("p", "", remark)));
    this.gate.hidden = !gates;
    this.play.hidden = !words.length;
    const names = ["summary", ...maps.map((map) => map.name)];
    this.mapSelect.replaceChildren(...names.map((name) => element("option", "", name)));
    this.mapChoice.hidden = !maps.length;
    this.step = -1;
    this.showMap(0);
    this.select(step === null ? this.sharpest() : step);
    if (this.pinned !== null) this.pinned = this.step;
    this.beam.choose(index);
  }

  // The word whose weights are the most peaked: the first to be shown.
  sharpest() {
    const peaks = this.caption.words.map((_, step) => {
      const values = this.valuesOf(step);
      return Math.abs(this.map.low + values[peakOf(this.map, values)] * (this.map.high - this.map.low));
    });
    return peaks.indexOf(Math.max(...peaks));
  }

  // The summary, or one of the further maps.
  showMap(index) {
    this.map = index ? this.caption.maps[index - 1] : this.caption;
    this.drawScale();
    this.strip.show();
    this.matrix.show();
    this.select(this.step);
  }

  // u of every cell for one word.
  valuesOf(step) {
    const size = this.map.grid[0] * this.map.grid[1];
    return decode(this.map).subarray(step * size, (step + 1) * size);
  }

  makeChip(word, gate) {
    const chip = button("satt-word", word);
    if (gate !== null) {
      const bar = element("span", "satt-bar");
      bar.setAttribute("aria-hidden", "true");
      bar.style.setProperty("--gate", gate);
      chip.append(bar);
    }
    return chip;
  }

  listen() {
    const stepOf = (event) => {
      const chip = event.target.closest(".satt-word");
      return chip ? this.chips.indexOf(chip) - 1 : null;
    };
    this.words.addEventListener("pointerover", (event) => {
      const step = stepOf(event);
      if (step !== null && event.pointerType === "mouse" && step !== this.step) this.halt(step);
    });
    this.words.addEventListener("focusin", (event) => {
      const step = stepOf(event);
      if (step !== null && step !== this.step && event.target.matches(":focus-visible")) this.halt(step);
    });
    this.words.addEventListener("click", (event) => {
      const step = stepOf(event);
      if (step !== null) this.halt(step, { focus: true, link: true });
    });
    this.words.addEventListener("pointerleave", () => this.back());
    this.words.addEventListener("keydown", (event) => this.key(event));
    this.play.addEventListener("click", () => this.togglePlay());
    this.stage.addEventListener("pointermove", (event) => this.pointAt(event));
    this.stage.addEventListener("pointerdown", (event) => this.pointAt(event));
    this.stage.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.select(this.step));
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const last = this.caption.words.length - 1;
    const { step } = this;
    const right = this.words.dir === "rtl" ? -1 : 1;
    const goals = { ArrowLeft: step - right, ArrowRight: step + right, Home: 0, End: last, Escape: -1 };
    if (!(event.key in goals)) return;
    event.preventDefault();
    event.stopPropagation(); // a notebook would move to another cell
    this.halt(Math.max(Math.min(goals[event.key], last), -1), { focus: true, link: true });
  }

  back() {
    if (this.pinned !== null && this.pinned !== this.step) this.select(this.pinned);
  }

  halt(step, { focus = false, link = false } = {}) {
    this.stop();
    this.select(step);
    if (focus) this.chips[step + 1].focus();
    if (this.pinned !== null && (focus || link)) this.pinned = step;
    if (link) this.chosen(this, step);
  }

  select(step) {
    this.step = step;
    this.chips.forEach((chip, index) => {
      chip.setAttribute("aria-pressed", String(index === step + 1));
      chip.tabIndex = index === step + 1 ? 0 : -1;
      chip.style.removeProperty("--seen");
    });
    this.words.classList.remove("satt-pointing");
    this.strip.select(step);
    this.matrix.select(step);
    const { gates, likeliest } = this.caption;
    const values = step < 0 ? null : this.valuesOf(step);
    this.overlay.move(this.caption, this.map, values, ...this.choice(step));
    this.status.textContent = step < 0 ? this.hint() : this.describe(step, values);
    this.others.hidden = !likeliest;
    if (likeliest) this.others.textContent = step < 0 ? "" : this.alsoLikely(step);
    if (gates) this.drawGate(step < 0 ? null : gates[step]);
    this.marked();
  }

  // Show the map of a hypothesis of the beam, which no word of this caption has. `select` shows a word's map again.
  showOther(map, values, text) {
    this.stop();
    this.chips.forEach((chip) => chip.setAttribute("aria-pressed", "false"));
    this.overlay.move(this.caption, map, values, null, null);
    this.strip.select(-1);
    this.status.textContent = text;
    this.others.hidden = true;
    if (this.caption.gates) this.drawGate(null);
  }

  // The cell and the point that were chosen for a word, if any.
  choice(step) {
    const { grid, locations, points } = this.caption;
    const framed = step >= 0 && locations && String(grid) === String(this.map.grid);
    return [framed ? locations[step] : null, step >= 0 && points ? points[step] : null];
  }

  // What draws the map, if it is not the attention.
  get method() {
    return this.caption.method && (this.map.name ?? this.caption.method);
  }

  get symbol() {
    return this.method ? "w" : "α";
  }

  hint() {
    if (!this.caption.words.length) return "This caption has no words.";
    const { method } = this;
    const [word, place] = method ? [`its map, ${method}`, "are high"] : ["where the model looked", "looked"];
    return `Point at a word, tap it or use the arrow keys to see ${word}. Point at the photo to see which words ${place} there.`;
  }

  describe(step, values) {
    const { words, word_log_probs: logs, sentinel, sees } = this.caption;
    const { low, high, grid, box } = this.map;
    const peak = peakOf(this.map, values);
    const alpha = number(low + values[peak] * (high - low));
    const share = logs[step] === null ? "" : `, p ${probability(logs[step])}`;
    const cell = `row ${Math.floor(peak / grid[1]) + 1}, column ${(peak % grid[1]) + 1} of ${grid[0]} × ${grid[1]}`;
    const place = `${region(this.photo, box, grid, peak)} (${cell})`;
    const height = this.map.signed ? "" : `, ${peakText(this.map, values, this.symbol)}`;
    const rest = sentinel && this.map === this.caption ? `; sentinel ${number(sentinel[step])}` : "";
    const thing = sees && sees[step] ? `; ${sees[step]}` : "";
    const { method } = this;
    const most = method ? `${method} is highest at` : "looked most at";
    return `“${words[step]}”${share}: ${most} the ${place}, ${this.symbol} ${alpha}${height}${rest}${thing}`;
  }

  alsoLikely(step) {
    const others = this.caption.likeliest[step].filter(([word]) => word !== this.caption.words[step]);
    const told = others.slice(0, 4).map(([word, log]) => `“${word}” ${probability(log)}`);
    return told.length ? `also likely: ${told.join(", ")}` : "";
  }

  // Highlight the words that looked at the place under the pointer.
  pointAt(event) {
    const frame = this.stage.getBoundingClientRect();
    const x = ((event.clientX - frame.left) / frame.width) * this.photo.size[0];
    const y = ((event.clientY - frame.top) / frame.height) * this.photo.size[1];
    const { grid, low, high, even, mean } = this.map;
    const { seen } = this.caption;
    const inside = x >= seen[0] && y >= seen[1] && x < seen[2] && y < seen[3];
    const [row, col] = cellAt(this.map, x, y);
    const weights = this.caption.words.map((_, step) =>
      inside ? low + this.valuesOf(step)[row * grid[1] + col] * (high - low) : 0,
    );
    const most = Math.max(...weights);
    const threshold = this.map.signed ? high / 4 : mean;
    this.words.classList.add("satt-pointing");
    weights.forEach((weight, step) => {
      const seen = weight > threshold ? weight / most : 0;
      this.chips[step + 1].style.setProperty("--seen", seen.toFixed(3));
    });
    const order = weights.map((weight, step) => [weight, step]).filter(([weight]) => weight > threshold);
    order.sort((one, other) => other[0] - one[0]);
    const told = order.slice(0, 4).map(([weight, step]) => {
      return `“${this.caption.words[step]}” ${even === null ? number(weight) : `${times(weight / even)} even`}`;
    });
    const none = inside ? "No word has more than even attention here" : "The model did not see this part";
    const thing = inside ? this.thingOf(...cellAt(this.caption, x, y)) : "";
    this.status.textContent = (told.length ? `${this.method ? "High" : "Looked"} here: ${told.join(", ")}` : none) + thing;
  }

  // The thing that the lens sees in a single region, if one is likely.
  thingOf(row, col) {
    const { lens } = this.caption;
    const seen = lens && lens.regions.length ? lens.regions[row][col] : null;
    return seen ? `; the encoder sees ${seen[0]} ${seen[1].toFixed(1)} here` : "";
  }

  drawGate(value) {
    this.gateLabel.textContent = `gate β ${value === null ? "–" : value.toFixed(2)}`;
    this.meter.setAttribute("aria-valuenow", value === null ? "0" : String(value));
    this.meter.firstChild.style.setProperty("--gate", value === null ? 0 : value);
  }

  drawScale() {
    const context = this.ramp.getContext("2d");
    const strip = context.createImageData(256, 1);
    const colours = new Uint32Array(strip.data.buffer);
    const scale = this.view.scale(this.map);
    const table = this.view.table(scale);
    for (let x = 0; x < 256; x++) colours[x] = table[Math.round((x / 255) * (LEVELS - 1))];
    context.putImageData(strip, 0, 0);
    const { even, signed, sums_to_one: sums } = this.map;
    const more = !this.view.blur && this.map.high > scale.high ? " or more" : "";
    const { covers, locations, points, sentinel } = this.caption;
    const { method } = this;
    this.scaleText.textContent =
      `${this.symbol}${method ? ` (${method})` : ""} from ${number(scale.low)} to ${number(scale.high)}${more}, one scale for all words of this caption` +
      (even === null ? "" : `; even attention is ${number(even)}`) +
      (sums || method ? "" : "; the α of a word need not sum to 1") +
      (signed ? "; signed: orange above 0, blue below" : "") +
      (sentinel ? "; sentinel: the share that no region got" : "") +
      (covers ? "" : "; hatched: not seen by the model") +
      (locations ? "; frame: the cell looked at" : "") +
      (points ? "; cross: the point looked at" : "");
  }

  togglePlay() {
    if (this.timer) return this.stop();
    const last = this.caption.words.length - 1;
    const advance = () => (this.step >= last ? this.stop() : this.select(this.step + 1));
    this.play.textContent = "❚❚ Pause";
    this.timer = setInterval(advance, PACE);
    this.select(this.step >= last ? Math.min(0, last) : this.step + 1);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "▶ Play";
  }

  repaint() {
    this.overlay.paint();
    this.drawScale();
    this.strip.refresh();
  }
}
