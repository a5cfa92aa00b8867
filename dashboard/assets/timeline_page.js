/* The timeline as a page of its own, with the events in it. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  /* The engine in a thread of its own, so that the picture moves while it counts; where a page
     from disk may not have one, in the page. */
  async function worked(about, text) {
    let worker = null;
    try {
      const code = new Blob([document.getElementById("engine").textContent], { type: "text/javascript" });
      worker = new Worker(URL.createObjectURL(code));
    } catch (error) {
      return T.embedded(about, text);
    }
    const waiting = new Map();
    let last = 0;
    const ask = (question, given) => new Promise((resolve, reject) => {
      last += 1;
      waiting.set(last, { resolve, reject });
      worker.postMessage({ id: last, question, given });
    });
    worker.onmessage = ({ data }) => {
      const { resolve, reject } = waiting.get(data.id);
      waiting.delete(data.id);
      if (data.error) reject(new Error(data.error));
      else resolve(data.found);
    };
    worker.onerror = () => waiting.forEach(({ reject }) => reject(new Error("the engine stopped")));
    await ask("open", { about, text });
    return { ask: (question, given) => (question === "about" ? Promise.resolve(about) : ask(question, given)) };
  }

  T.page = async function () {
    const place = document.getElementById("timeline");
    const about = JSON.parse(document.getElementById("about").textContent);
    const engine = await worked(about, document.getElementById("events").textContent.trim());
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    let dark = system.matches;
    const remember = (state) => {
      const text = T.LINKED.filter((n) => state[n]).map((n) => `${n}=${encodeURIComponent(state[n])}`).join("&");
      window.history.replaceState(null, "", text ? `#${text}` : window.location.pathname);
    };
    const given = Object.fromEntries(new URLSearchParams(window.location.hash.slice(1)));
    const tall = Math.max(300, window.innerHeight - 420);
    const handle = await T.mount(place, engine, { dark: () => dark, remember, badges: about.badges, height: tall });
    if (!handle) return;
    const colour = () => { document.documentElement.dataset.dark = dark ? "1" : ""; handle.recolour(); };
    system.addEventListener("change", () => { dark = system.matches; colour(); });
    document.getElementById("dark").addEventListener("click", () => { dark = !dark; colour(); });
    colour();
    await handle.restore(given);
    handle.focus();
    window.htkHandle = handle;
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
