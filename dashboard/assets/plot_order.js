/* Charts are drawn one at a time, those in sight first, so that the first is seen before the last is
   made and the page answers meanwhile. */
(function () {
  "use strict";
  const waiting = [];
  let isDrawing = false;

  const nearness = (gd) => {
    const { top, bottom } = gd.getBoundingClientRect();
    return Math.max(top - window.innerHeight, -bottom, 0); // pixels outside the window
  };

  /* The nearest chart that waits; of several in sight the first of the page. */
  function nearest() {
    const far = waiting.map((chart) => nearness(chart.gd));
    return waiting.splice(far.indexOf(Math.min(...far)), 1)[0];
  }

  function drawNext() {
    const chart = nearest();
    if (!chart) {
      isDrawing = false;
      return;
    }
    // What has left the page meanwhile is not drawn.
    new Promise((resolve) => { resolve(chart.gd.isConnected ? chart.draw() : chart.gd); }).then(chart.resolve, chart.reject);
    setTimeout(drawNext); // the browser paints before the next
  }

  /* A chart's first drawing waits its turn; later ones, after a click or a filter, do not. */
  function inTurn(react) {
    return /** @this {any} */ function (gd, ...rest) {
      if (!(gd instanceof Element) || /** @type {any} */ (gd)._fullLayout) return react.call(this, gd, ...rest);
      return new Promise((resolve, reject) => {
        waiting.push({ gd, resolve, reject, draw: () => react.call(this, gd, ...rest) });
        if (!isDrawing) {
          isDrawing = true;
          setTimeout(drawNext);
        }
      });
    };
  }

  let library;
  Object.defineProperty(window, "Plotly", {
    configurable: true,
    get: () => library,
    set: (loaded) => {
      library = loaded;
      loaded.react = inTurn(loaded.react);
    },
  });
})();
