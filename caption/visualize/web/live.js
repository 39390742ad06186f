// The page of `caption serve`: a photo is dropped, and the server answers.

import { button } from "./text.js";
import { explore } from "./explore.js";

const LOST = "The server does not answer: is caption serve still running? Nothing here is lost; try again.";

async function fetched(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (options.signal && options.signal.aborted) throw error;
    throw new Error(LOST);
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  const failure = new Error(answer.error || `The server answers with ${response.status}. Try again.`);
  failure.gone = response.status === 404;
  throw failure;
}

class LivePage {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    this.problem = root.querySelector(".satt-problem");
    this.input = root.querySelector("input[type=file]");
    this.input.addEventListener("change", () => this.input.files.length && this.open(this.input.files[0]));
    const choose = button("satt-choose", "Choose a photo");
    choose.addEventListener("click", () => this.input.click());
    const buttons = root.querySelector(".satt-buttons");
    const examples = this.data.examples.map(({ name, preview }, number) => {
      const example = button("satt-example", "", `Example: ${name}`);
      example.append(Object.assign(new Image(), { src: preview, alt: "", title: name }));
      example.addEventListener("click", () => this.openExample(number, name));
      return example;
    });
    buttons.replaceChildren(choose, ...examples);
    window.addEventListener("dragover", (event) => event.preventDefault());
    for (const kind of ["dragenter", "dragleave", "drop"]) {
      window.addEventListener(kind, () => root.classList.toggle("satt-over", kind === "dragenter"));
    }
    window.addEventListener("drop", (event) => {
      event.preventDefault();
      this.open(event.dataTransfer.files[0]);
    });
    window.addEventListener("paste", (event) => event.clipboardData.files.length && this.open(event.clipboardData.files[0]));
  }

  async openExample(number, name) {
    try {
      const response = await fetch(`api/example?number=${number}`);
      this.open(new File([await response.blob()], name));
    } catch {
      this.problem.textContent = LOST;
    }
  }

  async open(file) {
    this.problem.textContent = "";
    if (!file) return (this.problem.textContent = "That was not a photo: drop a JPEG or PNG file.");
    const most = this.data.largest_bytes;
    if (file.size > most) {
      return (this.problem.textContent = `“${file.name}” has ${Math.ceil(file.size / 1e6)} MB; at most ${most / 1e6} MB are accepted. Scale it down.`);
    }
    if (this.opening) this.opening.abort();
    const opening = (this.opening = new AbortController());
    this.root.setAttribute("aria-busy", "true");
    try {
      const answer = await this.upload(file, opening.signal);
      if (opening.signal.aborted) return;
      this.file = file;
      this.root.classList.add("satt-opened");
      if (this.shown) this.shown.abort();
      this.shown = new AbortController();
      const data = { ...this.data, ...answer };
      explore(this.root, data, (model, request, signal) => this.ask(model, request, signal), this.shown.signal);
    } catch (error) {
      if (!opening.signal.aborted) this.problem.textContent = error.message;
    } finally {
      if (this.opening === opening) this.root.removeAttribute("aria-busy");
      this.input.value = "";
    }
  }

  async upload(file, signal) {
    const answer = await fetched(`api/photos?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file, signal });
    this.photo = answer.photo;
    return answer;
  }

  // The server may have dropped the photo since: it is sent again.
  async ask(model, request, signal) {
    const once = () => {
      const body = JSON.stringify({ photo: this.photo, model: this.data.models[model], ...request });
      return fetched("api/captions", { method: "POST", body, signal, headers: { "Content-Type": "application/json" } });
    };
    try {
      return await once();
    } catch (error) {
      if (!error.gone) throw error;
      await this.upload(this.file, signal);
      return once();
    }
  }
}

document.querySelectorAll(".satt-live").forEach((root) => new LivePage(root));
