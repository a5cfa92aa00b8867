/* Charts are drawn when they are near the window, one at a time, those in sight first: the first is
   seen before the next is made, and the page answers meanwhile. */
(function () {
  "use strict";
  const due = [];
  let isDrawing = false;

  const nearness = (gd) => {
    const { top, bottom } = gd.getBoundingClientRect();
    return Math.max(top - window.innerHeight, -bottom, 0); // pixels outside the window
  };

  /* The nearest chart that is due; of several in sight the first of the page. */
  function nearest() {
    const far = due.map((chart) => nearness(chart.gd));
    return due.splice(far.indexOf(Math.min(...far)), 1)[0];
  }

  function draw(chart) {
    // What has left the page meanwhile is not drawn.
    new Promise((resolve) => { resolve(chart.gd.isConnected ? chart.draw() : chart.gd); }).then(chart.resolve, chart.reject);
  }

  function drawNext() {
    const chart = nearest();
    isDrawing = !!chart;
    if (!chart) return;
    draw(chart);
    setTimeout(drawNext); // the browser paints before the next
  }

  function inTurn(chart) {
    due.push(chart);
    if (isDrawing) return;
    isDrawing = true;
    setTimeout(drawNext);
  }

  /* A chart's first drawing waits until it is near, and its turn; later ones, after a click or a
     filter, do not. */
  function whenNear(react) {
    return /** @this {any} */ function (gd, ...rest) {
      if (!(gd instanceof Element) || /** @type {any} */ (gd)._fullLayout) return react.call(this, gd, ...rest);
      return new Promise((resolve, reject) => {
        const chart = { gd, resolve, reject, draw: () => react.call(this, gd, ...rest) };
        window.htkWhenNear(gd, (isPrinted) => (isPrinted ? draw(chart) : inTurn(chart)));
      });
    };
  }

  /* Dash fits a chart to its place when it has been drawn, which has its size already. */
  function whereSizeChanged(resize) {
    return /** @this {any} */ function (gd) {
      const { width, height } = gd?._fullLayout || {};
      const isFitting = width === gd?.clientWidth && height === gd?.clientHeight;
      return isFitting && gd._fullLayout.autosize ? Promise.resolve(gd) : resize.call(this, gd);
    };
  }

  let library;
  Object.defineProperty(window, "Plotly", {
    configurable: true,
    get: () => library,
    set: (loaded) => {
      library = loaded;
      loaded.react = whenNear(loaded.react);
      if (loaded.Plots) loaded.Plots.resize = whereSizeChanged(loaded.Plots.resize);
    },
  });
})();
