/* The timeline as a page of its own, with the events in it. */
(function (T) {
  "use strict";
  const NAMES = ["at", "event", "range"];

  T.page = async function () {
    const place = document.getElementById("timeline");
    const about = JSON.parse(document.getElementById("about").textContent);
    const engine = await T.embedded(about, document.getElementById("events").textContent.trim());
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    let dark = system.matches;
    const remember = (state) => {
      const text = NAMES.filter((n) => state[n]).map((n) => `${n}=${encodeURIComponent(state[n])}`).join("&");
      window.history.replaceState(null, "", text ? `#${text}` : window.location.pathname);
    };
    const given = Object.fromEntries(new URLSearchParams(window.location.hash.slice(1)));
    const tall = Math.max(300, window.innerHeight - 420);
    const handle = await T.mount(place, engine, { dark: () => dark, remember, badges: about.badges, height: tall });
    const colour = () => { document.documentElement.dataset.dark = dark ? "1" : ""; handle.recolour(); };
    system.addEventListener("change", () => { dark = system.matches; colour(); });
    document.getElementById("dark").addEventListener("click", () => { dark = !dark; colour(); });
    colour();
    await handle.restore(given);
    window.htkHandle = handle;
  };
})(globalThis.htkTimeline = globalThis.htkTimeline || {});
