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
      const places = [...document.querySelectorAll(".twin:not([data-on])")];
      if (places.length !== 2) return;
      for (const place of places) place.dataset.on = "1";
      try {
        const twins = await Promise.all(places.map(mounted));
        new MutationObserver(() => twins.forEach((t) => t.handle.recolour())).observe(
          document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
        window.htkTwins = twins;
        follow(twins);
      } catch (error) {
        places[0].textContent = `The timelines cannot be shown: ${error.message}`;
      }
    });
  };
})();
