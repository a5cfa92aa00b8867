/* Puts the timeline into its page when Dash has drawn it; the view lives in the address. */
(function () {
  "use strict";
  const T = globalThis.htkTimeline ??= /** @type {any} */ ({});
  const dark = () => document.documentElement.dataset.mantineColorScheme === "dark";

  const SETTLES = 400; // ms: longer than the timeline waits before it notes a change

  function remembered() {
    const found = new URLSearchParams(window.location.hash.slice(1));
    return Object.fromEntries(T.LINKED.map((name) => [name, found.get(name) || ""]));
  }

  /* Selections, views and marks are steps that one goes back through. */
  function keep(state, isStep) {
    const text = T.LINKED.filter((name) => state[name]).map((name) => `${name}=${encodeURIComponent(state[name])}`).join("&");
    const bare = window.location.pathname + window.location.search;
    if (text === window.location.hash.slice(1)) return;
    const address = text ? `${bare}#${text}` : bare;
    if (isStep) window.history.pushState(window.history.state, "", address);
    else window.history.replaceState(window.history.state, "", address);
  }

  /* The time that filters ask for, or the chosen steps. */
  function beginning(place, about) {
    const { from, to, steps } = place.dataset;
    const at = (time) => T.placeOf(about, Number(time));
    if (from || to) return { start: from ? at(from) : about.low, end: to ? at(to) : about.high };
    const chosen = new Set((steps || "").split(",").filter(Boolean).map(Number));
    const mine = about.steps.filter((s) => chosen.has(s[2]));
    return mine.length ? { start: Math.min(...mine.map((s) => s[3])), end: Math.max(...mine.map((s) => s[4])) } : null;
  }

  function narrow(start, end) {
    const query = new URLSearchParams(window.location.search);
    query.set("from", `${(start / 1e6).toFixed(6)}ms`);
    query.set("to", `${(end / 1e6).toFixed(6)}ms`);
    window.history.pushState({}, "", `${window.location.pathname}?${query}`);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate")); // as links of the app do
  }

  async function build(place) {
    const source = T.http(place.dataset.query);
    const state = remembered();
    const { pathname } = window.location;
    const { search } = window.location;
    let left = false;
    let settled = Infinity; // when what the address says is shown: from then on changes are steps
    const options = {
      dark, select: null,
      narrow: (start, end) => { left = true; narrow(start, end); },
      // The address of another page says nothing of this one.
      remember: (now) => { if (!left && place.isConnected && window.location.pathname === pathname) keep(now, performance.now() > settled); },
    };
    try {
      const known = await source.ask("about", {});
      const chosen = beginning(place, known);
      if (chosen) options.start = options.filter = chosen;
      const handle = await T.mount(place, { ask: (q, given) => (q === "about" && given.aligned !== 0 ? known : source.ask(q, given)) }, options);
      if (!handle) return;
      if (place.dataset.name) handle.search(place.dataset.name);
      if (chosen) {
        const margin = (chosen.end - chosen.start) * 0.03;
        handle.go(chosen.start - margin, chosen.end + margin);
      }
      const longest = window.location.hash === "#longest" && place.dataset.name;
      const given = place.dataset.event;
      await handle.restore(Object.values(state).some(Boolean) ? state : { event: given });
      if (longest) await handle.jump("longest", place.dataset.name);
      if (!place.isConnected) return; // another took its place meanwhile
      window.htkHandle = handle;
      settled = performance.now() + SETTLES;
      const back = async () => {
        if (!place.isConnected) { window.removeEventListener("popstate", back); return; }
        if (window.location.pathname !== pathname || window.location.search !== search) return;
        settled = Infinity;
        await handle.revisit(remembered());
        settled = performance.now() + SETTLES;
      };
      window.addEventListener("popstate", back);
      if (document.activeElement === document.body) handle.focus();
      new MutationObserver(() => handle.recolour()).observe(document.documentElement,
        { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
    } catch (error) {
      place.textContent = `The timeline cannot be shown: ${error.message}`;
    }
  }

  window.htkMountTimeline = function () {
    requestAnimationFrame(() => {
      const place = document.getElementById("timeline");
      if (place && place.dataset.on !== place.dataset.query) {
        place.dataset.on = place.dataset.query;
        build(place);
      }
    });
    return "";
  };
})();
