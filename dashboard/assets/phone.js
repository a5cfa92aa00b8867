/* On a phone, charts whose labels would run together or take the room of what they label; narrow
   tables whose names would. */
(function () {
  "use strict";
  const NARROW = 600; // pixels of the window, or of a table
  const LONGEST = 26; // characters of a label beside an axis
  const TWO_LINES = 48; // pixels of a row whose label may have two
  const LETTER = 7; // pixels of a letter of a label
  const FEW = 4; // marks of an axis of amounts
  const NAME = 150; // pixels of a column of names
  const OF_TABLE = 0.5; // of a narrow table, that a pinned name takes at most
  const NUMBERED = /^(rank|step|stage|device) (\S+)$/;

  /* A sentence in two lines, a name by its beginning and end. */
  function fitted(text) {
    const half = text.length / 2;
    const gaps = [...text.matchAll(/ /g)].map((gap) => gap.index);
    const gap = gaps.sort((a, b) => Math.abs(a - half) - Math.abs(b - half))[0];
    if (gap > 0 && Math.max(gap, text.length - gap) <= LONGEST) return `${text.slice(0, gap)}<br>${text.slice(gap + 1)}`;
    return short(text);
  }

  const short = (text) => (text.length <= LONGEST ? text : `${text.slice(0, 15)}…${text.slice(-10)}`);
  const unique = (values) => [...new Set(values)];

  /* Labels of an axis as they are drawn, where they are words. */
  function labels(traces, axis) {
    const values = unique(traces.flatMap((trace) => Array.from(trace[axis] || []))); // or packed numbers
    return values.length && values.every((value) => typeof value === "string") ? values : [];
  }

  /* Words below bars, in two rows by turns where they would run together in one, and no longer than
     two places. */
  function staggered(words, room) {
    const place = room / words.length / LETTER;
    const cut = (text) => (text.length <= 2 * place ? text : `${text.slice(0, Math.max(1, Math.floor(2 * place) - 1))}…`);
    return words.every((text) => text.length <= place) ? null : words.map((text, k) => `${k % 2 ? "<br>" : ""}${cut(text)}`);
  }

  /* What changes about a chart; nothing of it is left out but second lines of cells. */
  function narrowed(gd) {
    const layout = {};
    const numbered = labels(gd.data, "x");
    if (numbered.length && numbered.every((text) => NUMBERED.test(text))) {
      Object.assign(layout, { "xaxis.tickvals": numbered, "xaxis.ticktext": numbered.map((text) => NUMBERED.exec(text)[2]),
        "xaxis.title.text": NUMBERED.exec(numbered[0])[1] });
    } else if (numbered.length) {
      const rows = staggered(numbered, gd.layout.xaxis?.ticktext ? Infinity : gd._fullLayout.xaxis._length);
      if (rows) Object.assign(layout, { "xaxis.tickvals": numbered, "xaxis.ticktext": rows });
    } else if (gd._fullLayout.xaxis?.type === "linear" && !gd.layout.xaxis?.tickvals) {
      layout["xaxis.nticks"] = FEW;
    }
    const beside = gd.layout.yaxis && gd.layout.yaxis.ticktext ? [...gd.layout.yaxis.ticktext] : labels(gd.data, "y");
    if (beside.some((text) => text.length > LONGEST)) {
      const fit = gd.clientHeight / beside.length < TWO_LINES ? short : fitted;
      Object.assign(layout, { "yaxis.tickvals": gd.layout.yaxis.tickvals || beside, "yaxis.ticktext": beside.map((text) => (text.length > LONGEST ? fit(text) : text)) });
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
    const words = gd.data.map((trace, k) => (trace.mode === "text" ? k : -1)).filter((k) => k >= 0); // beside the cells
    if (words.length) window.Plotly.restyle(gd, { text: words.map((k) => [...gd.data[k].text].map(first)) }, words);
  }

  /* A pinned name would leave no room for what is said of it: on a phone it goes with the rest, in
     a narrow table of a wide window it takes half at most. */
  function makeRoom(grid) {
    const api = window.dash_ag_grid.getApi(grid.id);
    if (!api) return;
    grid.dataset.narrow = "1";
    const isPhone = window.innerWidth <= NARROW;
    const most = isPhone ? NAME : Math.round(grid.clientWidth * OF_TABLE);
    const names = api.getColumns().filter((column) => column.isPinnedLeft() && column.getActualWidth() > 100);
    const cut = () => {
      const wide = names.filter((column) => column.getActualWidth() > most);
      if (wide.length) api.setColumnWidths(wide.map((column) => ({ key: column.getColId(), newWidth: most })));
    };
    if (isPhone) api.setColumnsPinned(names, null);
    cut();
    api.addEventListener("columnResized", (event) => { // the grid fits columns to their rows, again and again
      if (event.finished && String(event.source).startsWith("autosize")) cut();
    });
  }

  function look() {
    for (const grid of document.querySelectorAll('.grid [class*="ag-theme"][id]:not([data-narrow])')) {
      if (grid.clientWidth <= NARROW && grid.querySelector(".ag-row") && window.dash_ag_grid) makeRoom(grid);
    }
    if (window.innerWidth > NARROW || !window.Plotly) return;
    for (const gd of document.querySelectorAll(".js-plotly-plot:not([data-narrow])")) {
      if (gd.querySelector(".main-svg") && /** @type {any} */ (gd).data) narrow(gd);
    }
  }

  let due = 0;
  const soon = () => { due = due || requestAnimationFrame(() => { due = 0; look(); }); };
  new MutationObserver(soon).observe(document.documentElement, { childList: true, subtree: true });
})();
