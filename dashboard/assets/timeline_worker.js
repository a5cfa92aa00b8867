/* The thread that the engine of a page from disk runs in. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  // Only there: a page has a document.
  if (typeof document !== "undefined") return;
  let engine = null;
  globalThis.onmessage = async ({ data: { id, question, given } }) => {
    try {
      if (question === "open") engine = await T.embedded(given.about, given.text);
      const found = question === "open" ? null : await engine.ask(question, given);
      const arrays = question === "view" ? Object.values(found).filter(ArrayBuffer.isView).map((a) => a.buffer) : [];
      globalThis.postMessage({ id, found }, { transfer: arrays });
    } catch (error) {
      globalThis.postMessage({ id, error: error.message });
    }
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
