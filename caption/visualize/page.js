// Moves the light over the photos of a page or of a notebook's cells.
//
// A notebook may show the same output twice, and each comes with this script: every run takes care of the
// elements that none has taken care of before. They carry no ids, which could clash.
//
// Every photo comes with captions; a caption with one map per word, each rows x cols bytes. A byte q stands
// for u = (q / 255)², and u for α = low + u · (high − low): the root keeps small weights apart. The light is
// √u, drawn by the formula in light.py.
(function () {
  "use strict";

  const LEVELS = 1024; // of u, in the table of colours
  const MOVE = 180; // milliseconds that the light takes from one word to the next
  const PACE = 900; // milliseconds per word when playing
  const stillness = window.matchMedia("(prefers-reduced-motion: reduce)");

  // The colour that lies over the photo for each level of u, as canvas pixels (little-endian RGBA).
  class Light {
    constructor(opacity, glow) {
      const white = Math.min(glow, opacity);
      this.colours = new Uint32Array(LEVELS);
      for (let level = 0; level < LEVELS; level++) {
        const light = Math.sqrt(level / (LEVELS - 1));
        const alpha = opacity * (1 - light) + white * light;
        this.colours[level] = pixel(alpha > 0 ? (white * light) / alpha : 0, alpha);
      }
      this.unseen = pixel(0, opacity);
      this.hatch = pixel(0.4, opacity);
    }
  }

  function pixel(grey, alpha) {
    const g = Math.round(255 * grey);
    return ((Math.round(255 * alpha) << 24) | (g << 16) | (g << 8) | g) >>> 0;
  }

  // For each of `pixels` along one side of the canvas: the cell it lies in, or -1 outside the box, and the two
  // cells between whose centres it lies, with its part of the way from one to the other.
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

  function decode(text) {
    return Float32Array.from(atob(text), (byte) => (byte.charCodeAt(0) / 255) ** 2);
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

  // The canvas over one photo: knows geometry and colour, nothing of words.
  class Overlay {
    constructor(stage, photo, view) {
      this.photo = photo;
      this.view = view;
      this.canvas = element("canvas");
      this.canvas.setAttribute("aria-hidden", "true");
      this.canvas.className = "satt-off";
      // Of a small photo the browser shows an enlarged copy; cells shall have sharp edges there, too.
      const sharper = Math.max(1, Math.round(480 / Math.max(...photo.shown)));
      this.width = photo.shown[0] * sharper;
      this.height = photo.shown[1] * sharper;
      stage.append(this.canvas);
    }

    // Only now, because a gallery may hold hundreds of photos that nobody ever points at.
    allocate() {
      this.canvas.width = this.width;
      this.canvas.height = this.height;
      this.context = this.canvas.getContext("2d");
      this.pixels = this.context.createImageData(this.width, this.height);
      this.values = new Uint32Array(this.pixels.data.buffer);
    }

    // Place the grid of a caption; the map itself comes with `move`.
    setGrid(caption) {
      const [left, top, right, bottom] = caption.box;
      const [rows, cols] = caption.grid;
      if (!this.grid || this.grid.rows !== rows || this.grid.cols !== cols) this.map = null;
      this.grid = { rows, cols };
      this.box = caption.box;
      this.across = along(this.width, this.photo.size[0], left, right, cols);
      this.down = along(this.height, this.photo.size[1], top, bottom, rows);
    }

    // Let the light glide to another map, or take it off with null.
    move(map, cell) {
      cancelAnimationFrame(this.frame);
      this.cell = cell;
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
      const { smooth, light } = this.view;
      for (let y = 0, at = 0; y < this.height; y++) {
        const row = this.down.cell[y];
        for (let x = 0; x < this.width; x++, at++) {
          const col = this.across.cell[x];
          if (row < 0 || col < 0) this.values[at] = (x + y) % 10 < 2 ? light.hatch : light.unseen;
          else {
            const u = smooth ? this.between(x, y) : this.map[row * cols + col];
            this.values[at] = light.colours[Math.round(u * (LEVELS - 1))];
          }
        }
      }
      this.context.putImageData(this.pixels, 0, 0);
      if (this.cell) this.outline(this.cell);
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

    outline([row, col]) {
      const [left, top, right, bottom] = this.box;
      const scale = this.width / this.photo.size[0];
      const width = ((right - left) / this.grid.cols) * scale;
      const height = ((bottom - top) / this.grid.rows) * scale;
      // Black under white: one of the two shows on any photo.
      for (const [colour, line] of [["#000", 4], ["#fff", 2]]) {
        this.context.strokeStyle = colour;
        this.context.lineWidth = line;
        this.context.strokeRect(left * scale + col * width, top * scale + row * height, width, height);
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
      caption.append(this.words, this.makeGate(), this.status, this.makeScale());
      if (photo.captions.length > 1) caption.append(this.makeChoice());
      if (photo.left_out) {
        caption.append(element("p", "satt-note", `${photo.left_out} more are left out here.`));
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
      this.caption.maps = this.caption.maps || decode(this.caption.weights);
      this.overlay.setGrid(this.caption);
      const { words, gates } = this.caption;
      const chips = words.map((word, step) => this.makeChip(word, gates ? gates[step] : null));
      const plain = this.makeChip("photo", null);
      plain.classList.add("satt-plain");
      plain.title = "The photo without light";
      this.play = element("button", "satt-play", "▶");
      this.play.type = "button";
      this.play.setAttribute("aria-label", "Play the words one after the other");
      this.chips = [plain, ...chips];
      this.words.replaceChildren(...this.chips, this.play);
      this.gate.hidden = !this.caption.gates;
      this.drawScale();
      this.select(Math.min(this.step, chips.length - 1));
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
      const { grid, maps, locations, gates } = this.caption;
      const size = grid[0] * grid[1];
      const map = step < 0 ? null : maps.subarray(step * size, (step + 1) * size);
      this.overlay.move(map, step >= 0 && locations ? locations[step] : null);
      this.status.textContent = step < 0 ? this.hint() : this.describe(step, map);
      if (gates) this.drawGate(step < 0 ? null : gates[step]);
    }

    hint() {
      if (!this.caption.words.length) return "The model said nothing.";
      return "Point at a word, tap it or use the arrow keys to see where the model looked.";
    }

    describe(step, map) {
      const { words, word_log_probs: logs, low, high, grid } = this.caption;
      const peak = map.indexOf(Math.max(...map));
      const alpha = low + map[peak] * (high - low);
      const share = logs[step] === null ? "" : `, p ${number(Math.exp(logs[step]))}`;
      const [row, col] = [Math.floor(peak / grid[1]), peak % grid[1]];
      const cell = `row ${row + 1}, column ${col + 1} of ${grid[0]} × ${grid[1]}`;
      const place = `${this.region(row, col)} (${cell})`;
      return `“${words[step]}”${share}: looked most at the ${place}, α ${number(alpha)}`;
    }

    // Where in the photo a cell lies, in words.
    region(row, col) {
      const [left, top, right, bottom] = this.caption.box;
      const [rows, cols] = this.caption.grid;
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
      for (let x = 0; x < 256; x++) colours[x] = this.view.light.colours[Math.round((x / 255) * (LEVELS - 1))];
      context.putImageData(strip, 0, 0);
      const { low, high, grid, covers, locations } = this.caption;
      const even = number(1 / (grid[0] * grid[1]));
      const range = `α from ${number(low)} to ${number(high)}`;
      this.scaleText.textContent =
        `${range}, one scale for all words of this caption; spread evenly it would be ${even}` +
        (covers ? "" : "; hatched: not seen by the model") +
        (locations ? "; frame: the cell looked at" : "");
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
    controls.setAttribute("aria-label", "How the light is drawn");
    const smooth = element("input");
    smooth.type = "checkbox";
    smooth.className = "satt-smooth";
    smooth.addEventListener("change", () => {
      view.smooth = smooth.checked;
      cards.forEach((card) => card.repaint());
    });
    const opacity = element("input");
    opacity.type = "range";
    opacity.className = "satt-opacity";
    Object.assign(opacity, { min: 0, max: 100, value: Math.round(100 * data.opacity) });
    opacity.addEventListener("input", () => {
      view.light = new Light(opacity.value / 100, data.glow);
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
    const view = { smooth: false, light: new Light(data.opacity, data.glow) };
    const cards = Array.from(root.querySelectorAll("figure"), (figure, index) => {
      return new Card(figure, data.photos[index], view);
    });
    root.querySelector(".satt-gallery").before(makeControls(cards, view, data));
  }

  document.querySelectorAll(".satt:not([data-ready])").forEach(start);
})();
