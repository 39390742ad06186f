// The explorer in a notebook: an anywidget, whose Python side answers messages.

import { explore } from "./explore.js";
import { element } from "./text.js";

function render({ model, el }) {
  const root = element("div", "satt mathjax_ignore tex2jax_ignore");
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take the arrow keys
  el.append(root);
  const waiting = new Map();
  let count = 0;
  const answered = ({ id, record, error }) => {
    const promise = waiting.get(id);
    if (!promise) return;
    waiting.delete(id);
    if (error) promise.reject(new Error(error));
    else promise.resolve(record);
  };
  model.on("msg:custom", answered);
  const data = { ...model.get("styles"), image: model.get("image"), photos: model.get("photos") };
  const gone = new AbortController();
  const ask = (index, request) => {
    const id = (count += 1);
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      model.send({ id, model: index, ...request });
    });
  };
  const explorers = explore(root, data, ask, gone.signal);
  // Changes made in Python; those made here come back as answers, too.
  const changed = () => {
    model.get("photos").forEach((photo, index) => explorers[index].shows(photo) || explorers[index].take(photo));
  };
  model.on("change:photos", changed);
  return () => {
    gone.abort();
    model.off("msg:custom", answered);
    model.off("change:photos", changed);
  };
}

export default { render };
