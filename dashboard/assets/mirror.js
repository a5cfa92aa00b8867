/* Two timelines one above the other: what moves one moves the other, each from its first step on. */
(function () {
  "use strict";
  const HEIGHT = 300;
  const dark = () => document.documentElement.dataset.mantineColorScheme === "dark";

  function begin(about) {
    const onGpu = about.steps.filter((s) => s[0] === 1);
    const starts = (onGpu.length ? onGpu : about.steps).map((s) => s[3]);
    return starts.length ? Math.min(...starts) : about.low;
  }

  async function mounted(place) {
    const T = globalThis.htkTimeline;
    const source = T.http(place.dataset.query);
    const handle = await T.mount(place, source, { dark, height: HEIGHT });
    if (!handle) return null; // it holds nothing, and says so
    return { place, handle, zero: begin(handle.state.about), seen: handle.view() };
  }

  function follow(twins) {
    if (!twins.every((t) => t.place.isConnected)) return;
    twins.forEach((twin, k) => {
      const view = twin.handle.view();
      if (view.start === twin.seen.start && view.end === twin.seen.end) return;
      const other = twins[1 - k];
      const shift = other.zero - twin.zero;
      twin.seen = view;
      other.handle.go(view.start + shift, view.end + shift);
      other.seen = other.handle.view();
    });
    requestAnimationFrame(() => follow(twins));
  }

  window.htkMirror = function () {
    requestAnimationFrame(async () => {
      const places = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".twin:not([data-on])")]);
      if (places.length !== 2) return;
      for (const place of places) place.dataset.on = "1";
      // One that cannot be shown leaves the other standing.
      const shown = await Promise.all(places.map((place) => mounted(place).catch((error) => {
        place.textContent = `This side cannot be shown: ${error.message}`;
        return null;
      })));
      const twins = shown.filter((twin) => twin);
      if (twins.length) {
        new MutationObserver(() => twins.forEach((t) => t.handle.recolour())).observe(
          document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
        window.htkTwins = twins;
        if (twins.length === 2) follow(twins);
      }
    });
  };
})();
