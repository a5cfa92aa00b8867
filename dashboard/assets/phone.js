/* On a phone: charts whose labels would run together or take the room of what they label. */
(function () {
  "use strict";
  const NARROW = 600; // pixels of the window
  const LONGEST = 26; // characters of a label beside an axis
  const NUMBERED = /^(rank|step|stage|device) (\S+)$/;

  const short = (text) => (text.length <= LONGEST ? text : `${text.slice(0, 15)}…${text.slice(-10)}`);
  const unique = (values) => [...new Set(values)];

  /* Labels of an axis as they are drawn, where they are words. */
  function labels(traces, axis) {
    const values = unique(traces.flatMap((trace) => Array.from(trace[axis] || []))); // or packed numbers
    return values.length && values.every((value) => typeof value === "string") ? values : [];
  }

  /* What changes about a chart; nothing of it is left out but second lines of cells. */
  function narrowed(gd) {
    const layout = {};
    const numbered = labels(gd.data, "x");
    if (numbered.length && numbered.every((text) => NUMBERED.test(text))) {
      Object.assign(layout, { "xaxis.tickvals": numbered, "xaxis.ticktext": numbered.map((text) => NUMBERED.exec(text)[2]),
        "xaxis.title.text": NUMBERED.exec(numbered[0])[1] });
    }
    const beside = gd.layout.yaxis && gd.layout.yaxis.ticktext ? [...gd.layout.yaxis.ticktext] : labels(gd.data, "y");
    if (beside.some((text) => text.length > LONGEST)) {
      Object.assign(layout, { "yaxis.tickvals": gd.layout.yaxis.tickvals || beside, "yaxis.ticktext": beside.map(short) });
    }
    const maps = gd.data.map((trace, k) => (trace.type === "heatmap" ? k : -1)).filter((k) => k >= 0);
    return { layout, maps };
  }

  function narrow(gd) {
    gd.dataset.narrow = "1";
    const { layout, maps } = narrowed(gd);
    if (Object.keys(layout).length) window.Plotly.relayout(gd, layout);
    if (!maps.length) return;
    const first = (text) => String(text).split("<br>")[0];
    const texts = maps.map((k) => gd.data[k].text && [...gd.data[k].text].map((row) => [...row].map(first)));
    window.Plotly.restyle(gd, { showscale: false, ...(texts.some(Boolean) ? { text: texts } : {}) }, maps);
  }

  function look() {
    if (window.innerWidth > NARROW || !window.Plotly) return;
    for (const gd of document.querySelectorAll(".js-plotly-plot:not([data-narrow])")) {
      if (gd.querySelector(".main-svg") && /** @type {any} */ (gd).data) narrow(gd);
    }
  }

  let due = 0;
  const soon = () => { due = due || requestAnimationFrame(() => { due = 0; look(); }); };
  new MutationObserver(soon).observe(document.documentElement, { childList: true, subtree: true });
})();
