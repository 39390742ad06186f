// Shows attention over the photos of a page or of a notebook's cells.
//
// A notebook may show the same output twice, and each comes with this script: every run starts the elements that no run
// has started before. They carry no ids, which could clash.
//
// Every photo comes with captions. A caption has one summary map per word, rows x cols bytes, and perhaps further maps,
// each with a grid of its own. A byte stands for u in [0, 1], and u for α = low + u · (high − low); see page.py. Colours
// follow the formula in styles.py.
(function () {
  "use strict";

  const LEVELS = 1024; // of u, in the table of colours
  const MOVE = 180; // milliseconds from one word's map to the next
  const PACE = 900; // milliseconds per word when playing
  const stillness = window.matchMedia("(prefers-reduced-motion: reduce)");

  // The colour that lies over the photo for each level of u, as canvas pixels (little-endian RGBA).
  class Colours {
    constructor(opacity, data) {
      const white = [255, 255, 255];
      const table = (lightness, tint, colour) =>
        Uint32Array.from({ length: LEVELS }, (_, level) => {
          const u = level / (LEVELS - 1);
          const share = Math.min(tint, opacity) * lightness(u);
          const alpha = opacity * (1 - lightness(u)) + share;
          return pixel(colour(u).map((part) => (alpha > 0 ? (part * share) / alpha : 0)), alpha);
        });
      this.plain = table(Math.sqrt, data.tint, () => white);
      const distance = (u) => Math.sqrt(Math.abs(2 * u - 1)); // from 0, which lies at u = 1/2
      this.signed = table(distance, data.signed_tint, (u) => (u < 0.5 ? data.below : data.above));
      this.unseen = pixel([0, 0, 0], opacity);
      this.hatch = pixel([102, 102, 102], opacity);
    }

    of(map) {
      return map.signed ? this.signed : this.plain;
    }
  }

  function pixel(colour, alpha) {
    const [r, g, b] = colour.map(Math.round);
    return ((Math.round(255 * alpha) << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  // For each of `pixels` along one side of the canvas: the cell it lies in, or -1 outside the box; the two cells between
  // whose centres it lies, and how far it lies from the first towards the second.
  function along(pixels, length, start, end, cells) {
    const axis = {
      cell: new Int16Array(pixels),
      before: new Int16Array(pixels),
      after: new Int16Array(pixels),
      part: new Float32Array(pixels),
    };
    for (let i = 0; i < pixels; i++) {
      const place = ((((i + 0.5) / pixels) * length - start) / (end - start)) * cells;
      const before = Math.floor(place - 0.5);
      axis.cell[i] = place >= 0 && place < cells ? Math.floor(place) : -1;
      axis.before[i] = Math.min(Math.max(before, 0), cells - 1);
      axis.after[i] = Math.min(Math.max(before + 1, 0), cells - 1);
      axis.part[i] = place - 0.5 - before;
    }
    return axis;
  }

  // u of every cell.
  function decode(map) {
    const root = (q) => (q - 128) / 127;
    const toU = map.signed ? (q) => (1 + root(q) * Math.abs(root(q))) / 2 : (q) => (q / 255) ** 2;
    return Float32Array.from(atob(map.weights), (byte) => toU(byte.charCodeAt(0)));
  }

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function number(value) {
    return value === null ? "?" : String(Number(value.toPrecision(2))).replace("-", "−");
  }

  // The canvas over one photo.
  class Overlay {
    constructor(stage, photo, view) {
      this.photo = photo;
      this.view = view;
      this.canvas = element("canvas");
      this.canvas.setAttribute("aria-hidden", "true");
      this.canvas.className = "satt-off";
      // The browser enlarges a small photo; cells have sharp edges there, too.
      const sharper = Math.max(1, Math.round(480 / Math.max(...photo.shown)));
      this.width = photo.shown[0] * sharper;
      this.height = photo.shown[1] * sharper;
      stage.append(this.canvas);
    }

    // Done late, because a gallery may hold hundreds of photos.
    allocate() {
      this.canvas.width = this.width;
      this.canvas.height = this.height;
      this.context = this.canvas.getContext("2d");
      this.pixels = this.context.createImageData(this.width, this.height);
      this.values = new Uint32Array(this.pixels.data.buffer);
    }

    // Place the grid of a map; its values come with `move`.
    setGrid(box, map) {
      const [left, top, right, bottom] = box;
      const [rows, cols] = map.grid;
      if (!this.grid || this.grid.rows !== rows || this.grid.cols !== cols || this.signed !== map.signed) this.map = null;
      this.grid = { rows, cols };
      this.signed = map.signed;
      this.box = box;
      this.across = along(this.width, this.photo.size[0], left, right, cols);
      this.down = along(this.height, this.photo.size[1], top, bottom, rows);
    }

    // Glide to another map, or hide the canvas with null.
    move(map, cell, point) {
      cancelAnimationFrame(this.frame);
      this.cell = cell;
      this.point = point;
      this.canvas.classList.toggle("satt-off", map === null);
      if (map === null) return;
      const from = this.map;
      const jump = !from || stillness.matches;
      const start = performance.now();
      const glide = (now) => {
        const part = jump ? 1 : Math.min(1, Math.max(0, (now - start) / MOVE));
        const eased = part * (2 - part);
        this.map = part === 1 ? map : map.map((value, i) => from[i] + (value - from[i]) * eased);
        this.paint();
        if (part < 1) this.frame = requestAnimationFrame(glide);
      };
      glide(start);
    }

    paint() {
      if (!this.map) return;
      if (!this.pixels) this.allocate();
      const { cols } = this.grid;
      const { smooth, colours } = this.view;
      const table = colours.of(this);
      for (let y = 0, at = 0; y < this.height; y++) {
        const row = this.down.cell[y];
        for (let x = 0; x < this.width; x++, at++) {
          const col = this.across.cell[x];
          if (row < 0 || col < 0) this.values[at] = (x + y) % 10 < 2 ? colours.hatch : colours.unseen;
          else {
            const u = smooth ? this.between(x, y) : this.map[row * cols + col];
            this.values[at] = table[Math.round(u * (LEVELS - 1))];
          }
        }
      }
      this.context.putImageData(this.pixels, 0, 0);
      this.mark();
    }

    // Bilinear between the centres of the four nearest cells.
    between(x, y) {
      const { before, after, part } = this.across;
      const upper = this.down.before[y] * this.grid.cols;
      const lower = this.down.after[y] * this.grid.cols;
      const over = this.map[upper + before[x]] * (1 - part[x]) + this.map[upper + after[x]] * part[x];
      const under = this.map[lower + before[x]] * (1 - part[x]) + this.map[lower + after[x]] * part[x];
      return over * (1 - this.down.part[y]) + under * this.down.part[y];
    }

    // Frame the cell and cross the point that was chosen.
    mark() {
      const [left, top, right, bottom] = this.box;
      const scale = this.width / this.photo.size[0];
      const width = ((right - left) / this.grid.cols) * scale;
      const height = ((bottom - top) / this.grid.rows) * scale;
      const path = new Path2D();
      if (this.cell) path.rect(left * scale + this.cell[1] * width, top * scale + this.cell[0] * height, width, height);
      if (this.point) {
        const [x, y] = this.point.map((place) => place * scale);
        path.addPath(new Path2D(`M${x - 8} ${y}H${x + 8}M${x} ${y - 8}V${y + 8}`));
      }
      // Black under white: one of the two shows on any photo.
      for (const [colour, line] of [["#000", 4], ["#fff", 2]]) {
        this.context.strokeStyle = colour;
        this.context.lineWidth = line;
        this.context.stroke(path);
      }
    }
  }

  // One photo with its words.
  class Card {
    constructor(figure, photo, view) {
      this.photo = photo;
      this.view = view;
      this.step = -1;
      const stage = figure.querySelector(".satt-photo");
      stage.style.setProperty("--ratio", photo.size[0] / photo.size[1]);
      this.overlay = new Overlay(stage, photo, view);
      const caption = figure.querySelector("figcaption");
      caption.textContent = "";
      this.words = element("div", "satt-words");
      this.words.setAttribute("role", "toolbar");
      this.words.setAttribute("aria-label", "Words of the caption");
      this.status = element("p", "satt-status");
      this.status.setAttribute("role", "status");
      caption.append(this.words, this.makeGate(), this.status, this.makeMapChoice(), this.makeScale());
      if (photo.captions.length > 1) caption.append(this.makeChoice());
      for (const [count, what] of [[photo.left_out, "captions"], [photo.maps_left_out, "maps"]]) {
        if (count) caption.append(element("p", "satt-note", `${count} more ${what} are left out here.`));
      }
      this.listen();
      this.show(0);
    }

    makeGate() {
      this.gate = element("div", "satt-gate");
      this.gateLabel = element("span", "", "gate β");
      this.meter = element("span", "satt-meter");
      this.meter.setAttribute("role", "meter");
      this.meter.setAttribute("aria-label", "gate β, how much of the image this word took in");
      this.meter.setAttribute("aria-valuemin", "0");
      this.meter.setAttribute("aria-valuemax", "1");
      this.meter.append(element("span"));
      this.gate.append(this.gateLabel, this.meter);
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
      const choice = element("fieldset", "satt-choice");
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
          label.append(element("small", "", `log p ${caption.log_prob.toFixed(2).replace("-", "−")}`));
        }
        choice.append(label);
      });
      return choice;
    }

    show(index) {
      this.caption = this.photo.captions[index];
      const { words, gates, maps } = this.caption;
      const chips = words.map((word, step) => this.makeChip(word, gates ? gates[step] : null));
      const plain = this.makeChip("photo", null);
      plain.classList.add("satt-plain");
      plain.title = "The photo alone";
      this.play = element("button", "satt-play", "▶");
      this.play.type = "button";
      this.play.setAttribute("aria-label", "Play the words one after the other");
      this.chips = [plain, ...chips];
      this.words.replaceChildren(...this.chips, this.play);
      this.gate.hidden = !this.caption.gates;
      this.step = Math.min(this.step, chips.length - 1);
      const names = ["summary", ...maps.map((map) => map.name)];
      this.mapSelect.replaceChildren(...names.map((name) => element("option", "", name)));
      this.mapChoice.hidden = !maps.length;
      this.showMap(0);
    }

    // The summary, or one of the further maps.
    showMap(index) {
      this.map = index ? this.caption.maps[index - 1] : this.caption;
      this.map.values = this.map.values || decode(this.map);
      this.overlay.setGrid(this.caption.box, this.map);
      this.drawScale();
      this.select(this.step);
    }

    makeChip(word, gate) {
      const chip = element("button", "satt-word", word);
      chip.type = "button";
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
        if (step !== null) this.halt(step, true);
        else if (event.target === this.play) this.togglePlay();
      });
      this.words.addEventListener("keydown", (event) => this.key(event));
    }

    key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const last = this.caption.words.length - 1;
      const { step } = this;
      const goals = { ArrowLeft: step - 1, ArrowRight: step + 1, Home: 0, End: last, Escape: -1 };
      if (!(event.key in goals)) return;
      event.preventDefault();
      event.stopPropagation(); // a notebook would move to another cell
      this.halt(Math.max(Math.min(goals[event.key], last), -1), true);
    }

    halt(step, focus) {
      this.stop();
      this.select(step, focus);
    }

    select(step, focus) {
      this.step = step;
      this.chips.forEach((chip, index) => {
        chip.setAttribute("aria-pressed", String(index === step + 1));
        chip.tabIndex = index === step + 1 ? 0 : -1;
      });
      if (focus) this.chips[step + 1].focus();
      const { grid, locations, points, gates } = this.caption;
      const size = this.map.grid[0] * this.map.grid[1];
      const map = step < 0 ? null : this.map.values.subarray(step * size, (step + 1) * size);
      const framed = step >= 0 && locations && String(grid) === String(this.map.grid);
      this.overlay.move(map, framed ? locations[step] : null, step >= 0 && points ? points[step] : null);
      this.status.textContent = step < 0 ? this.hint() : this.describe(step, map);
      if (gates) this.drawGate(step < 0 ? null : gates[step]);
    }

    hint() {
      if (!this.caption.words.length) return "The model said nothing.";
      return "Point at a word, tap it or use the arrow keys to see where the model looked.";
    }

    describe(step, map) {
      const { words, word_log_probs: logs, sentinel } = this.caption;
      const { low, high, grid } = this.map;
      const peak = map.indexOf(Math.max(...map));
      const alpha = low + map[peak] * (high - low);
      const share = logs[step] === null ? "" : `, p ${number(Math.exp(logs[step]))}`;
      const [row, col] = [Math.floor(peak / grid[1]), peak % grid[1]];
      const cell = `row ${row + 1}, column ${col + 1} of ${grid[0]} × ${grid[1]}`;
      const place = `${this.region(row, col)} (${cell})`;
      const rest = sentinel && this.map === this.caption ? `; sentinel ${number(sentinel[step])}` : "";
      return `“${words[step]}”${share}: looked most at the ${place}, α ${number(alpha)}${rest}`;
    }

    // Where in the photo a cell lies, in words.
    region(row, col) {
      const [left, top, right, bottom] = this.caption.box;
      const [rows, cols] = this.map.grid;
      const x = (left + ((col + 0.5) / cols) * (right - left)) / this.photo.size[0];
      const y = (top + ((row + 0.5) / rows) * (bottom - top)) / this.photo.size[1];
      if (x < 0 || y < 0 || x > 1 || y > 1) return "margin beyond the photo";
      const vertical = ["upper", "middle", "lower"][Math.min(2, Math.floor(3 * y))];
      const horizontal = ["left", "centre", "right"][Math.min(2, Math.floor(3 * x))];
      return vertical === "middle" && horizontal === "centre" ? "centre" : `${vertical} ${horizontal}`;
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
      const table = this.view.colours.of(this.map);
      for (let x = 0; x < 256; x++) colours[x] = table[Math.round((x / 255) * (LEVELS - 1))];
      context.putImageData(strip, 0, 0);
      const { low, high, even, signed, sums_to_one: sums } = this.map;
      const { covers, locations, points, sentinel } = this.caption;
      this.scaleText.textContent =
        `α from ${number(low)} to ${number(high)}, one scale for all words of this caption` +
        (even === null ? "" : `; spread evenly it would be ${number(even)}`) +
        (sums ? "" : "; the α of a word need not sum to 1") +
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
      this.play.textContent = "❚❚";
      this.timer = setInterval(advance, PACE);
      this.select(this.step >= last ? Math.min(0, last) : this.step + 1);
    }

    stop() {
      clearInterval(this.timer);
      this.timer = null;
      this.play.textContent = "▶";
    }

    repaint() {
      this.overlay.paint();
      this.drawScale();
    }
  }

  function makeControls(cards, view, data) {
    const controls = element("div", "satt-controls");
    controls.setAttribute("role", "group");
    controls.setAttribute("aria-label", "How attention is drawn");
    const smooth = element("input");
    smooth.type = "checkbox";
    smooth.className = "satt-smooth";
    smooth.checked = view.smooth;
    smooth.addEventListener("change", () => {
      view.smooth = smooth.checked;
      cards.forEach((card) => card.repaint());
    });
    const opacity = element("input");
    opacity.type = "range";
    opacity.className = "satt-opacity";
    Object.assign(opacity, { min: 0, max: 100, value: Math.round(100 * data.opacity) });
    opacity.addEventListener("input", () => {
      view.colours = new Colours(opacity.value / 100, data);
      cards.forEach((card) => card.repaint());
    });
    const first = element("label");
    first.append(smooth, element("span", "", "Smooth between cells"));
    const second = element("label");
    second.append(element("span", "", "Opacity"), opacity);
    controls.append(first, second);
    return controls;
  }

  function start(root) {
    root.dataset.ready = "true";
    const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    const view = { smooth: data.smooth, colours: new Colours(data.opacity, data) };
    const cards = Array.from(root.querySelectorAll("figure"), (figure, index) => {
      return new Card(figure, data.photos[index], view);
    });
    root.querySelector(".satt-gallery").before(makeControls(cards, view, data));
  }

  document.querySelectorAll(".satt:not([data-ready])").forEach(start);
})();
