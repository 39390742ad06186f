// Run in the page of `caption serve`. Records in `clicks`, for every click, when the pointer was released, the request was
// sent, the answer had arrived, and the sentence was painted.
(() => {
  const sent = window.fetch;
  window.clicks = [];
  let click = null;
  window.fetch = async (...request) => {
    const asked = performance.now();
    const response = await sent(...request);
    const body = await response.arrayBuffer();
    if (click) Object.assign(click, { asked, answered: performance.now() });
    return new Response(body, response);
  };
  window.addEventListener("pointerup", (event) => (click = { started: event.timeStamp }), true);
  window.watchSentences = () => new MutationObserver(() => {
    if (!click || !document.querySelector(".satt-sentence")) return;
    const finished = click;
    click = null;
    requestAnimationFrame(() => {
      const painted = new MessageChannel();
      painted.port1.onmessage = () => window.clicks.push(Object.assign(finished, { painted: performance.now() }));
      painted.port2.postMessage(0);
    });
  }).observe(document.querySelector(".satt-sentences"), { childList: true });
  window.drop = (photo) => {
    const bytes = Uint8Array.from(atob(photo), (letter) => letter.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], "photo.png"));
    window.dispatchEvent(new DragEvent("drop", { dataTransfer: files, cancelable: true }));
  };
})();
