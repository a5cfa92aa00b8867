/* Keys on a map of ranks: arrows go from GPU to GPU and tell its figure, Enter looks at its rank. */
(function () {
  "use strict";

  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const at = new WeakMap(); // of each picture: the cell that was told last

  /* The next cell in a direction that a rank is in; the same where there is none. */
  function next(cells, [row, column], [down, right]) {
    let [r, c] = [row + down, column + right];
    while (cells[r] && c >= 0 && c < cells[r].length) {
      if (cells[r][c] !== "") return [r, c];
      [r, c] = [r + down, c + right];
    }
    return [row, column];
  }

  document.addEventListener("keydown", (event) => {
    const figure = /** @type {HTMLElement} */ (event.target);
    if (!figure.matches("figure.population")) return;
    const picture = /** @type {any} */ (figure.querySelector(".js-plotly-plot")); // Plotly's own
    if (!picture || !picture.data) return;
    const curve = picture.data.findIndex((d) => d.type === "heatmap" && d.visible !== false);
    if (curve < 0) return;
    const cells = picture.data[curve].customdata;
    const here = at.get(picture);
    if (event.key === "Enter" && here) {
      const customdata = cells[here[0]][here[1]];
      picture.emit("plotly_click", { points: [{ curveNumber: curve, pointNumber: here, customdata }] });
    } else if (STEPS[event.key]) {
      event.preventDefault();
      const there = here ? next(cells, here, STEPS[event.key]) : [0, 0];
      at.set(picture, there);
      window.Plotly.Fx.hover(picture, { xval: there[1], yval: there[0] }, "xy");
    }
  });
})();
