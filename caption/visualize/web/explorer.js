// Attention moved by hand: tools on the photo of a card, and both sentences with their probabilities.

import { button, element, probability, rounded, select } from "./text.js";
import { cellAt, clamped, edges } from "./raster.js";

const TOOLS = [
  ["force", "Look here", "At the chosen word, look at these cells"],
  ["mask", "Not here", "At the chosen word, do not look at these cells"],
  ["never", "Never here", "At no word look at these cells"],
  ["erase", "Erase", "These cells are not in the image at all"],
];
const SEARCHES = [
  ["", "as saved"],
  ["greedy", "greedy"],
  ["beam", "beam of 5"],
  ["sample", "sample"],
];
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Explorer {
  // ask(request, signal): a promise of the photo's record under the request's changes and search.
  constructor(card, ask) {
    Object.assign(this, { card, ask, painted: new Map(), cursor: [0, 0], seed: 0 });
    card.pinned = card.step;
    card.marked = () => this.mark();
    this.requests = this.wanted = card.photo.change.requests;
    this.search = card.photo.search;
    this.cells = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.cells.classList.add("satt-cells");
    this.cells.setAttribute("aria-hidden", "true");
    this.cells.setAttribute("viewBox", `0 0 ${card.photo.size.join(" ")}`);
    this.cells.setAttribute("preserveAspectRatio", "none");
    card.stage.append(this.cells);
    this.said = element("p", "satt-said");
    this.said.setAttribute("role", "status");
    this.problem = element("p", "satt-problem");
    this.problem.setAttribute("role", "alert");
    this.sentences = element("div", "satt-sentences");
    card.figure.querySelector(".satt-main").append(this.makeTools(), this.problem);
    card.words.after(this.said, this.sentences);
    this.listen();
    this.show();
  }

  makeTools() {
    const bar = element("div", "satt-hand");
    const tools = element("fieldset", "satt-tool");
    tools.append(element("legend", "", "Click or paint on the photo"));
    const name = `satt-${Math.random()}`;
    this.tools = TOOLS.map(([tool, text, title], index) => {
      const label = element("label");
      const radio = element("input");
      Object.assign(radio, { type: "radio", name, value: tool, checked: index === 0 });
      label.title = title;
      label.append(radio, element("span", "", text));
      tools.append(label);
      return radio;
    });
    this.undo = button("satt-undo", "Undo");
    this.undo.addEventListener("click", () => this.send(this.wanted.slice(0, -1)));
    this.reset = button("satt-reset", "Reset");
    this.reset.addEventListener("click", () => this.send([]));
    const [row, searches] = select("satt-search", "Search", SEARCHES);
    this.searches = searches;
    searches.value = this.search ? this.search.kind : "";
    searches.addEventListener("change", () => this.searchAnew());
    this.again = button("satt-again", "Draw again");
    this.again.addEventListener("click", () => this.searchAnew());
    const buttons = element("div", "satt-tools");
    buttons.append(this.undo, this.reset, row, this.again);
    const { lens } = this.card.photo.captions[0];
    this.things = [];
    bar.append(tools, ...(lens ? [this.makeThings(lens.things)] : []), buttons);
    return bar;
  }

  // The things that the lens is sure of in the photo, and a field for another thing.
  makeThings(things) {
    const choice = element("fieldset", "satt-tool satt-things");
    this.things = things.map(([noun]) => {
      const made = button("satt-thing", noun);
      made.value = noun;
      made.title = "Make the chosen word look there";
      made.addEventListener("click", () => this.lookAt(noun));
      return made;
    });
    const other = element("input");
    Object.assign(other, { type: "text", maxLength: 60, placeholder: "another thing", autocomplete: "off" });
    other.setAttribute("aria-label", "Look at another thing");
    other.addEventListener("keydown", (event) => {
      event.stopPropagation(); // Ctrl+Z is the field's own
      if (event.key === "Enter" && other.value.trim()) this.lookAt(other.value.trim());
    });
    this.reset.addEventListener("click", () => (other.value = ""));
    choice.append(element("legend", "", "Or look at what the encoder sees"), ...this.things, other);
    return choice;
  }

  get tool() {
    return this.tools.find((radio) => radio.checked).value;
  }

  listen() {
    const { stage, figure } = this.card;
    stage.tabIndex = 0;
    stage.setAttribute("role", "application");
    stage.setAttribute("aria-label", "Cells of the photo: arrow keys move, with Shift they paint, Space applies the tool");
    stage.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      stage.setPointerCapture(event.pointerId);
      this.stroke = true;
      this.painted.clear();
      this.paint(this.cellAt(event));
    });
    stage.addEventListener("pointermove", (event) => this.stroke && this.paint(this.cellAt(event)));
    stage.addEventListener("pointerup", () => this.stroke && this.commit());
    stage.addEventListener("pointercancel", () => this.drop());
    stage.addEventListener("keydown", (event) => this.key(event));
    for (const event of ["focus", "blur"]) stage.addEventListener(event, () => this.mark());
    figure.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "z" && this.wanted.length) {
        event.preventDefault();
        this.undo.click();
      }
    });
  }

  key(event) {
    const { grid } = this.card.caption;
    if (event.key in ARROWS) {
      if (event.shiftKey) this.paint(this.cursor);
      const [down, right] = ARROWS[event.key];
      this.cursor = [clamped(this.cursor[0] + down, grid[0]), clamped(this.cursor[1] + right, grid[1])];
      if (event.shiftKey) this.paint(this.cursor);
      const [row, col] = this.cursor;
      this.said.textContent =
        `row ${row + 1}, column ${col + 1} of ${grid.join(" × ")}` + this.card.thingOf(row, col);
      this.mark();
    } else if (event.key === " " || event.key === "Enter") {
      this.paint(this.cursor);
      this.commit();
    } else if (event.key === "Escape") this.drop();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // The cell under the pointer; null where the model did not see the photo.
  cellAt(event) {
    const { stage, photo, caption } = this.card;
    const frame = stage.getBoundingClientRect();
    const x = ((event.clientX - frame.left) / frame.width) * photo.size[0];
    const y = ((event.clientY - frame.top) / frame.height) * photo.size[1];
    const { seen } = caption;
    return x < seen[0] || y < seen[1] || x >= seen[2] || y >= seen[3] ? null : cellAt(caption, x, y);
  }

  paint(cell) {
    if (!cell) return;
    this.painted.set(cell.join(), cell);
    this.cursor = cell;
    this.mark();
  }

  drop() {
    this.stroke = false;
    this.painted.clear();
    this.mark();
  }

  // Request the change that was painted.
  commit() {
    const cells = Array.from(this.painted.values()).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const { step, caption } = this.card;
    const { tool } = this;
    this.drop();
    if (!cells.length) return this.complain("The model did not see this part of the photo.");
    const ofWord = tool === "force" || tool === "mask";
    if (ofWord && step < 0) return this.complain("Choose a word first: this changes where it looks.");
    if (caption !== this.card.photo.captions[0]) return this.complain("Changes start from the best caption: choose it first.");
    const where = tool === "erase" ? { cells } : { steps: ofWord ? [step] : null, cells };
    return this.send([...this.wanted, { kind: tool === "never" ? "mask" : tool, ...where }]);
  }

  // Request that the chosen word looks where the lens sees a thing.
  lookAt(thing) {
    const { step, caption } = this.card;
    if (step < 0) return this.complain("Choose a word first: this changes where it looks.");
    if (caption !== this.card.photo.captions[0]) return this.complain("Changes start from the best caption: choose it first.");
    return this.send([...this.wanted, { kind: "force", steps: [step], thing }]);
  }

  searchAnew() {
    const kind = this.searches.value;
    const more = kind === "beam" ? { beam_size: 5 } : kind === "sample" ? { seed: (this.seed += 1) } : {};
    return this.send([], kind ? { kind, ...more } : null);
  }

  complain(text) {
    this.problem.textContent = text;
  }

  // Request the caption under these changes, instead of a pending request.
  async send(requests, search = this.search) {
    this.cancel();
    const asking = (this.asking = new AbortController());
    this.wanted = requests;
    this.complain("");
    this.card.figure.setAttribute("aria-busy", "true");
    try {
      const record = await this.ask({ changes: requests, search }, asking.signal);
      if (!asking.signal.aborted) this.take(record);
    } catch (error) {
      if (asking.signal.aborted) return;
      this.wanted = this.requests;
      this.searches.value = this.search ? this.search.kind : "";
      this.complain(error.message);
    } finally {
      if (this.asking === asking) this.card.figure.removeAttribute("aria-busy");
    }
  }

  // Drop the pending request.
  cancel() {
    if (this.asking) this.asking.abort();
  }

  // Whether a record's caption is on the screen.
  shows({ search, change }) {
    return JSON.stringify([search, change]) === JSON.stringify([this.search, this.card.photo.change]);
  }

  take(record) {
    this.requests = this.wanted = record.change.requests;
    this.search = record.search;
    this.card.update(record);
    this.show();
  }

  show() {
    const { before, after } = this.card.photo.change;
    this.undo.disabled = this.reset.disabled = !this.wanted.length;
    this.again.hidden = this.searches.value !== "sample";
    this.said.textContent = after
      ? parting(before.tokens, after.tokens)
      : "Choose a word, then click or paint where it should look: the rest of the sentence follows.";
    const lines = after ? [sentence("As it looked", before), sentence("With your changes", after)] : [];
    if (after) lines.push(element("small", "", "Probability of each word: as it looked → with your changes"));
    this.sentences.replaceChildren(...lines);
    const { steps } = this.card.photo.change;
    // Scroll a sentence that is wider than the screen to the first word that looks elsewhere.
    for (const line of this.sentences.querySelectorAll(".satt-tokens")) {
      line.scrollLeft = line.children[steps[0] || 0].offsetLeft - line.offsetLeft;
    }
    this.card.chips.forEach((chip, index) => {
      chip.classList.toggle("satt-moved", steps.includes(index - 1));
      chip.classList.toggle("satt-new", Boolean(after) && index > 0 && before.tokens[index - 1] !== after.tokens[index - 1]);
    });
    this.mark();
  }

  // Outline the cells that were changed at the word on the screen, those being painted, and the cell of the keyboard.
  mark() {
    const { step, stage } = this.card;
    const shapes = [];
    const looked = this.wanted.filter(({ steps }) => !steps || steps.includes(step)).map(({ thing }) => thing);
    for (const made of this.things) made.setAttribute("aria-pressed", String(looked.includes(made.value)));
    for (const { kind, steps, cells } of this.wanted) {
      if (cells && (!steps || steps.includes(step))) shapes.push(...cells.map((cell) => this.rect(cell, kind)));
    }
    for (const cell of this.painted.values()) shapes.push(this.rect(cell, "painted"));
    if (stage.matches(":focus-visible")) shapes.push(this.rect(this.cursor, "cursor"));
    this.cells.replaceChildren(...shapes);
  }

  rect([row, col], kind) {
    const { box, grid, seen } = this.card.caption;
    const [top, bottom] = edges(row, grid[0], [box[1], box[3]], [seen[1], seen[3]]);
    const [left, right] = edges(col, grid[1], [box[0], box[2]], [seen[0], seen[2]]);
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    rect.setAttribute("class", `satt-cell-${kind}`);
    const sides = { x: left, y: top, width: right - left, height: bottom - top };
    for (const [name, value] of Object.entries(sides)) rect.setAttribute(name, value);
    return rect;
  }
}

// A caption's words with the probability of each, without and under the changes.
function sentence(name, { tokens, without, under }) {
  const line = element("div", "satt-sentence");
  const sum = (logs) => logs.reduce((total, log) => total + (log === null ? -Infinity : log), 0);
  const logs = [without, under].map((side) => rounded(sum(side), 2).replace("Infinity", "∞"));
  const row = element("div", "satt-tokens");
  line.append(element("p", "satt-of", `${name}: log p ${logs.join(" → ")}`), row);
  tokens.forEach((token, index) => {
    const [one, other] = [without[index], under[index]].map((log) => (log === null ? -Infinity : log));
    const part = element("span", "satt-token");
    part.style.setProperty("--shift", Number.isFinite(one - other) ? 1 - Math.exp(-Math.abs(one - other)) : 1);
    const numbers = new Set([one, other].map(probability)); // one number where both are the same
    part.append(element("span", "", token), element("small", "", Array.from(numbers).join(" → ")));
    row.append(part);
  });
  return line;
}

function parting(before, after) {
  const step = before.findIndex((token, index) => token !== after[index]);
  if (step < 0 && before.length === after.length) return "The sentence stays the same; its probabilities below change.";
  const at = step < 0 ? before.length : step;
  return `“${before[at] || "nothing"}” becomes “${after[at] || "nothing"}”.`;
}
