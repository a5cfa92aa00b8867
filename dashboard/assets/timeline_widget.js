/* The timeline in a notebook: its questions go to the kernel as messages. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";

  function kernel(model) {
    const waiting = new Map();
    let last = 0;
    model.on("msg:custom", (answer, buffers) => {
      const asked = waiting.get(answer.id);
      if (!asked) return;
      waiting.delete(answer.id);
      if (answer.error) { asked.reject(new Error(answer.error)); return; }
      const data = buffers[0];
      const buffer = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
      asked.resolve(asked.question === "view" ? T.unpack(buffer) : JSON.parse(new TextDecoder().decode(buffer)));
    });
    return {
      ask: (question, given) => new Promise((resolve, reject) => {
        const id = ++last;
        waiting.set(id, { question, resolve, reject });
        const text = Object.fromEntries(Object.entries(given).map(([k, v]) => [k, String(v)]));
        model.send({ id, question, given: text });
      }),
    };
  }

  function dark() {
    const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
    if (jpThemeLight !== undefined) return jpThemeLight === "false";
    if (vscodeThemeKind !== undefined) return vscodeThemeKind.includes("dark");
    return window.matchMedia("(prefers-color-scheme: dark)").matches;
  }

  T.widget = function ({ model, el }) {
    const place = document.createElement("div");
    place.dataset.lmSuppressShortcuts = "true"; // W, A, S, D are ours while it has the focus
    el.append(place);
    let changed = null;
    T.mount(place, kernel(model), { dark, height: 480 }).then((handle) => {
      if (!handle) return;
      changed = new MutationObserver(() => handle.recolour());
      changed.observe(document.body, { attributes: true });
      /** @type {any} */ (el).htkHandle = handle;
    }, (error) => { place.textContent = `The timeline cannot be shown: ${error.message}`; });
    return () => { if (changed) changed.disconnect(); };
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
