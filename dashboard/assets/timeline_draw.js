/* One frame of the timeline: what was last heard of the server, at where the view is now. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const FONT = "11px system-ui, sans-serif";
  const CHARACTER = 6.3; // pixels; wider than most, so that a text stays in its span

  const MOST_ARROWS = 64;
  const TALL = 24; // pixels of a strip's image

  /* Pictures of what a server's view holds: lanes, strips, and of both what is lit. */
  T.pictures = function (S, data) {
    const picture = (prefix) => ({
      lanes: image(data, data[`${prefix}density`], data[`${prefix}dominant`], S.palette),
      strips: stacked(data, data[`${prefix}stack`], S),
    });
    data.pictures = picture("");
    data.lit = data.lit_density ? picture("lit_") : null;
  };

  /* The shares of cells as an image, a line for each lane. */
  function image(data, density, dominant, palette) {
    const { cells, lanes } = data.head;
    const pane = document.createElement("canvas");
    pane.width = Math.max(1, cells);
    pane.height = Math.max(1, lanes);
    if (!lanes) return pane;
    const picture = new ImageData(cells, lanes);
    const words = new Uint32Array(picture.data.buffer);
    const colours = palette.map(word);
    for (let i = 0; i < words.length; i++) {
      if (density[i]) words[i] = (Math.max(56, density[i]) << 24) | colours[dominant[i]];
    }
    pane.getContext("2d").putImageData(picture, 0, 0);
    return pane;
  }

  const word = (p) => (p.base[2] << 16) | (p.base[1] << 8) | p.base[0];

  /* The strips of ranks: in each cell the kinds one above the other, as high as their shares. */
  function stacked(data, stack, S) {
    const { cells, strips } = data.head;
    const pane = document.createElement("canvas");
    pane.width = Math.max(1, cells);
    pane.height = Math.max(1, strips.length * TALL);
    if (!strips.length) return pane;
    const picture = new ImageData(cells, strips.length * TALL);
    const words = new Uint32Array(picture.data.buffer);
    const colours = T.STRIPES.map((kind) => word(S.palette[S.about.kinds.indexOf(kind)]) | (255 << 24));
    for (let k = 0; k < strips.length; k++) {
      for (let x = 0; x < cells; x++) {
        let share = 0;
        let from = 0;
        for (let kind = 0; kind < colours.length; kind++) {
          const own = stack[(k * colours.length + kind) * cells + x];
          share += own;
          const upto = Math.min(TALL, own ? Math.max(from + (from < TALL && own > 8 ? 1 : 0), Math.round((share * TALL) / 255)) : from);
          for (let y = from; y < upto; y++) words[((k + 1) * TALL - 1 - y) * cells + x] = colours[kind];
          from = Math.max(from, upto);
        }
      }
    }
    pane.getContext("2d").putImageData(picture, 0, 0);
    return pane;
  }

  /* A line or strip of a view's picture, drawn into a box. */
  function drawn(context, data, picture, line, left, y, wide, h) {
    const strip = data.head.strips.indexOf(line);
    if (strip < 0) context.drawImage(picture.lanes, 0, line, picture.lanes.width, 1, left, y, wide, h);
    else context.drawImage(picture.strips, 0, strip * TALL, picture.strips.width, TALL, left, y, wide, h);
  }

  T.frame = function (S, context, size) {
    const { width, height, ratio } = size;
    const C = S.colours;
    const plot = width - T.GUTTER;
    const span = S.view.end - S.view.start;
    const X = (t) => T.GUTTER + ((t - S.view.start) / span) * plot;
    const Y = (y) => T.screenY(S, y);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = C.paper;
    context.fillRect(0, 0, width, height);
    const G = { S, context, width, height, plot, span, X, Y, C };
    const edge = T.AXIS + S.rows.pinned;
    pane({ ...G, pinned: false, top: edge, bottom: height });
    if (S.rows.pinned) pane({ ...G, pinned: true, top: T.AXIS, bottom: edge });
    context.save();
    context.beginPath();
    context.rect(T.GUTTER, T.AXIS, plot, height - T.AXIS);
    context.clip();
    if (S.path) criticalPath(G);
    if (S.selected) arrows(G);
    T.drawBreaks(G);
    T.noteBands(G);
    marked(G);
    context.restore();
    context.fillStyle = C.line;
    context.fillRect(T.GUTTER - 1, T.AXIS, 1, height);
    if (S.rows.pinned) context.fillRect(0, edge - 1, width, 2);
    axis(G);
    hits(G);
    T.noteFlags(G);
    if (S.drag && S.drag.mode === "select" && S.drag.box) box(G);
    if (S.drag && S.drag.mode === "track" && S.drag.line !== null) insertion(G);
  };

  /* The rows that scroll, or those that are pinned above them. */
  function pane(G) {
    const { S, context, plot, top, bottom, pinned } = G;
    const own = { ...G, rows: S.rows.list.filter((row) => !!row.pinned === pinned),
      blocks: S.rows.blocks.filter((block) => block.start < S.rows.pinned === pinned),
      holds: (y) => y < S.rows.pinned === pinned };
    context.save();
    context.beginPath();
    context.rect(T.GUTTER, top, plot, bottom - top);
    context.clip();
    backgrounds(own);
    unrecorded(own);
    if (S.shown) {
      shares(own);
      counters(own);
      spans(own);
    }
    context.restore();
    gutter(own);
  }

  /* Counters: a band from the lowest to the highest value of each cell, on what they are at least. */
  function counters({ S, context, top, bottom, X, Y, C, rows }) {
    const { shown } = S;
    const cells = shown.head.cells;
    const left = X(shown.start);
    const wide = (X(shown.end) - left) / cells;
    for (const row of rows) {
      const at = row.counter ? shown.head.counters.findIndex((line) => shown.lanes[line] === row.lane) : -1;
      if (at < 0 || Y(row.y) > bottom || Y(row.y) + row.h < top) continue;
      const { low, high } = row.counter;
      const y = (value) => Y(row.y) + row.h - 2 - ((value - low) / (high - low || 1)) * (row.h - 5);
      for (let k = 0; k < cells; k++) {
        const [least, most] = [shown.counter_low[at * cells + k], shown.counter_high[at * cells + k]];
        if (Number.isNaN(most)) continue;
        const x = left + k * wide;
        const w = wide + 0.5; // no seams between cells
        context.fillStyle = C.accent;
        context.globalAlpha = 0.28;
        context.fillRect(x, Math.min(y(most), y(0)), w, Math.abs(y(0) - y(most)));
        context.globalAlpha = 0.9;
        context.fillRect(x, y(most) - 0.6, w, Math.max(1.2, y(least) - y(most)));
      }
    }
    context.globalAlpha = 1;
  }

  /* Where on the axis something of a search, or the critical path, lies: in any track, seen or not. */
  function hits({ S, context, X, width, C }) {
    const { shown } = S;
    if (!shown || !shown.head.hits || !(S.wanted || S.path)) return;
    const cell = (shown.end - shown.start) / shown.head.cells;
    context.fillStyle = C.accent;
    for (const [from, to] of shown.head.hits) {
      const a = Math.max(T.GUTTER, X(shown.start + from * cell));
      const b = Math.min(width, X(shown.start + to * cell));
      if (b > a) context.fillRect(a, T.AXIS - 5, Math.max(1, b - a), 4);
    }
  }

  /* Where a track that is dragged would go. */
  function insertion({ S, context, C }) {
    context.fillStyle = C.accent;
    context.fillRect(0, S.drag.line - 1, T.GUTTER, 2);
  }

  function backgrounds({ S, context, width, top: upper, bottom: lower, plot, X, Y, C, rows, blocks }) {
    for (const row of rows) {
      const y = Y(row.y);
      if (!row.head || y > lower || y + row.h < upper) continue;
      context.fillStyle = C.head;
      context.fillRect(T.GUTTER, y, plot, row.h);
    }
    for (const block of blocks) {
      const top = Math.max(upper, Y(block.start));
      const bottom = Math.min(lower, Y(block.start) + block.end - block.start);
      if (bottom <= top) continue;
      for (const [gpu, rank, step, start, end] of S.about.steps) {
        if (rank !== block.rank || (gpu === 1) !== block.gpu) continue;
        const a = Math.max(T.GUTTER, X(start));
        const b = Math.min(width, X(end));
        if (b <= T.GUTTER || a >= width) continue;
        context.fillStyle = step % 2 ? C.band : C.paper;
        context.fillRect(a, top, b - a, bottom - top);
        context.fillStyle = C.line;
        if (X(start) >= T.GUTTER) context.fillRect(Math.round(a), top, 1, bottom - top);
        if (X(end) < width) context.fillRect(Math.round(b), top, 1, bottom - top);
      }
    }
  }

  /* Hatched: where nobody recorded the rank of a row. */
  function unrecorded({ S, context, width, top: upper, bottom: lower, X, Y, C, rows, blocks }) {
    const bands = rows.filter((row) => row.head).map((row) => ({ rank: row.rank, start: row.y, end: row.y + row.h }));
    for (const block of [...bands, ...blocks]) {
      const top = Math.max(upper, Y(block.start));
      const bottom = Math.min(lower, Y(block.start) + block.end - block.start);
      if (bottom <= top) continue;
      for (const [start, end] of T.gaps(S.about, block.rank)) {
        const a = Math.max(T.GUTTER, X(start));
        const b = Math.min(width, X(end));
        if (b - a < 2) continue;
        T.hatch(context, a, top, b - a, bottom - top, C);
      }
    }
  }

  T.hatch = function (context, x, y, w, h, C) {
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    context.fillStyle = C.unrecorded;
    context.fillRect(x, y, w, h);
    context.strokeStyle = C.hatch;
    context.lineWidth = 1;
    context.beginPath();
    for (let k = Math.floor((x + y) / 9) * 9; k < x + y + w + h; k += 9) {
      context.moveTo(k - y + 0.5, y);
      context.lineTo(k - y - h + 0.5, y + h);
    }
    context.stroke();
    context.restore();
  };

  function shares({ S, context, top, bottom, X, Y, holds }) {
    const { shown } = S;
    const left = X(shown.start);
    const wide = X(shown.end) - left;
    context.imageSmoothingEnabled = false;
    const dim = S.wanted || S.path;
    for (const picture of [shown.pictures, shown.lit]) {
      if (!picture || (picture === shown.lit && !dim)) continue;
      context.globalAlpha = picture === shown.pictures && dim ? 0.25 : 1;
      shown.lanes.forEach((lane, line) => {
        const at = S.rows.at[lane];
        if (at < 0 || !holds(at)) return;
        const head = ["busy", "node"].includes(S.about.lanes[lane][1]);
        const y = Y(at) + (head ? 4 : 1);
        const h = (head ? T.HEAD - 8 : T.LANE - 2);
        if (y > bottom || y + h < top) return;
        drawn(context, shown, picture, line, left, y, wide, h);
      });
    }
    context.globalAlpha = 1;
  }

  function spans(G) {
    const { S, context, width, top, bottom, X, Y, holds } = G;
    const { shown, about, palette } = S;
    const left = X(shown.start);
    const scale = X(shown.end) - left;
    const chosen = S.selected ? S.selected.id : -1;
    context.font = FONT;
    context.textBaseline = "middle";
    for (let i = 0; i < shown.head.count; i++) {
      const at = S.rows.at[shown.lanes[shown.lane[i]]];
      if (at < 0 || !holds(at)) continue;
      const y = Y(at) + 1;
      if (y > bottom || y + T.LANE < top) continue;
      let x = left + shown.x[i] * scale;
      let w = shown.w[i] * scale;
      if (x + w < T.GUTTER - 1 || x > width) continue;
      const full = w;
      if (x < T.GUTTER - 2) { w -= T.GUTTER - 2 - x; x = T.GUTTER - 2; }
      w = Math.max(1, Math.min(w, width + 2 - x));
      const name = shown.name[i];
      const kind = palette[about.kind_of[name]];
      const dim = (S.wanted && !S.hits.has(name)) || (S.path && !S.path.ids.has(shown.id[i]));
      context.globalAlpha = dim ? 0.28 : 1;
      context.fillStyle = kind.shades[name % 3];
      context.fillRect(x, y, full > 3 ? w - 0.6 : w, T.LANE - 2);
      if (kind.border && w > 2) {
        context.strokeStyle = kind.border;
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, w - 1.5, T.LANE - 3);
      }
      if (w > 26) {
        context.fillStyle = kind.border ? S.colours.ink : kind.text;
        const text = T.bare(about.names[name]);
        context.fillText(T.short(text, Math.floor((w - 6) / CHARACTER)), x + 4, y + T.LANE / 2 - 0.5);
      }
      if (S.wanted && !dim) {
        context.strokeStyle = S.colours.ink;
        context.lineWidth = 1.5;
        context.strokeRect(x, y, Math.max(2, w - 1), T.LANE - 2);
      }
      if (shown.id[i] === chosen || (S.hover && S.hover.id === shown.id[i])) {
        context.globalAlpha = 1;
        context.strokeStyle = S.colours.ink;
        context.lineWidth = shown.id[i] === chosen ? 2.5 : 1;
        context.strokeRect(x, y - 0.5, Math.max(3, w - 0.5), T.LANE - 1);
      }
    }
    context.globalAlpha = 1;
  }

  /* Where a lane is drawn; of one that is folded away, where its rank is. */
  function laneY(S, lane) {
    if (S.rows.at[lane] >= 0) return S.rows.at[lane] + T.LANE / 2;
    const rank = S.about.lanes[lane][0];
    const node = S.about.nodes.find((n) => n.ranks.includes(rank));
    const keys = [T.rankKey(rank), node && T.nodeKey(node)];
    const head = keys.map((key) => S.rows.list.find((row) => row.head && row.key === key)).find(Boolean);
    return head ? head.y + T.HEAD / 2 : -1;
  }

  function arrows({ S, context, X, Y, C }) {
    for (const arrow of (S.selected.arrows || []).slice(0, MOST_ARROWS)) {
      const [x0, y0] = [X(arrow.from[1]), Y(laneY(S, arrow.from[0]))];
      const [x1, y1] = [X(arrow.to[1]), Y(laneY(S, arrow.to[0]))];
      const bend = Math.max(24, Math.min(120, Math.abs(x1 - x0) / 2));
      for (const [colour, wide] of [[C.paper, 4], [C.ink, 1.6]]) {
        context.strokeStyle = context.fillStyle = colour;
        context.lineWidth = wide;
        context.setLineDash(arrow.kind === "backward" ? [6, 3] : arrow.kind === "collective" ? [2, 2] : []);
        context.beginPath();
        context.moveTo(x0, y0);
        context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
        context.stroke();
      }
      context.setLineDash([]);
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x1 - 7, y1 - 4);
      context.lineTo(x1 - 7, y1 + 4);
      context.fill();
      context.beginPath();
      context.arc(x0, y0, 3, 0, 7);
      context.fill();
    }
  }

  /* Bars under what the path runs through, and lines from each to the next. */
  function criticalPath({ S, context, width, height, X, Y, C }) {
    const { path } = S;
    let before = null;
    context.lineJoin = "round";
    for (let i = 0; i < path.start.length; i++) {
      const lane = path.lane[i];
      if (lane < 0) continue;
      const y = Y(laneY(S, lane));
      const a = X(path.start[i]);
      const b = Math.max(X(path.end[i]), a + 1);
      const under = S.rows.at[lane] >= S.rows.pinned && y < T.AXIS + S.rows.pinned; // a pinned row
      const seen = b > T.GUTTER && a < width && !under;
      if (seen && path.inside[i] && y > 0 && y < height) {
        context.fillStyle = C.paper;
        context.fillRect(a, y + T.LANE / 2 - 6, b - a, 5);
        context.fillStyle = C.ink;
        context.fillRect(a, y + T.LANE / 2 - 5, b - a, 4);
      }
      if (seen && before && (before.y !== y || !path.inside[i])) {
        for (const [colour, wide] of [[C.paper, 4], [C.ink, 2]]) {
          context.strokeStyle = colour;
          context.lineWidth = wide;
          context.beginPath();
          context.moveTo(before.x, before.y + T.LANE / 2 - 3);
          context.lineTo(path.inside[i] ? a : b, y + T.LANE / 2 - 3);
          context.stroke();
        }
      }
      before = { x: b, y };
    }
  }

  /* The time that is marked, and where the pointer is. */
  function marked({ S, context, height, X, width, C }) {
    if (S.range) {
      const a = X(S.range.start);
      const b = X(S.range.end);
      context.fillStyle = C.accent;
      context.globalAlpha = 0.1;
      context.fillRect(a, T.AXIS, b - a, height);
      context.globalAlpha = 1;
      context.fillRect(a, T.AXIS, 1.5, height);
      context.fillRect(b, T.AXIS, 1.5, height);
    }
    for (const limit of S.filter ? [S.filter.start, S.filter.end] : []) {
      const x = X(limit);
      if (x < T.GUTTER || x > width) continue;
      context.fillStyle = C.accent;
      for (let y = T.AXIS; y < height; y += 8) context.fillRect(x, y, 1, 4);
    }
    if (S.pointer && S.pointer.x > T.GUTTER) {
      context.fillStyle = C.soft;
      context.globalAlpha = 0.5;
      context.fillRect(S.pointer.x, T.AXIS, 1, height);
      context.globalAlpha = 1;
    }
  }

  function box({ S, context, C }) {
    const { x0, y0, x1, y1 } = S.drag.box;
    context.strokeStyle = C.accent;
    context.lineWidth = 1.5;
    context.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
  }

  function gutter({ S, context, top, bottom, Y, C, rows }) {
    context.fillStyle = C.paper;
    context.fillRect(0, top, T.GUTTER, bottom - top);
    context.save();
    context.beginPath();
    context.rect(0, top, T.GUTTER - 1, bottom - top);
    context.clip();
    context.textBaseline = "middle";
    const under = S.pointer && S.pointer.x < T.GUTTER ? T.rowUnder(S, S.pointer.y) : null;
    for (const row of rows) {
      const y = Y(row.y);
      if (y > bottom || y + row.h < top) continue;
      if (row.head) {
        context.fillStyle = C.head;
        context.fillRect(0, y, T.GUTTER, row.h);
      }
      const middle = y + row.h / 2;
      const inset = row.head && !row.inner ? 10 : 20;
      if (row.folds) {
        context.fillStyle = C.soft;
        context.beginPath();
        const x = inset;
        if (row.open) { context.moveTo(x - 4, middle - 2); context.lineTo(x + 4, middle - 2); context.lineTo(x, middle + 3); }
        else { context.moveTo(x - 2, middle - 4); context.lineTo(x - 2, middle + 4); context.lineTo(x + 3, middle); }
        context.fill();
      }
      if (!row.label) continue;
      context.fillStyle = row.head ? C.ink : C.soft;
      context.font = row.head ? "600 12px system-ui, sans-serif" : FONT;
      const tall = row.h === T.CHART;
      context.fillText(T.short(row.label, row.head ? T.LETTERS - 2 : T.LETTERS), inset + 8, tall ? y + 11 : middle + 0.5);
      if (tall) context.fillText(`to ${T.value(row.counter.high, row.counter.unit)}`, inset + 8, y + 25);
      if (!row.head && (row.pinned || (under && under.key === row.key))) pin(context, middle, row.pinned ? C.accent : C.soft);
    }
    context.restore();
  }

  function pin(context, middle, colour) {
    const x = T.GUTTER - T.PIN / 2 - 2;
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 1.2;
    context.fillRect(x - 3, middle - 5, 6, 5);
    context.fillRect(x - 5, middle, 10, 1.6);
    context.fillRect(x - 0.6, middle + 1, 1.2, 5);
  }

  /* The view without the breaks in it. */
  function pieces({ about, view }) {
    const found = [];
    let from = view.start;
    for (const cut of T.breaks(about, view)) {
      if (cut.from > from) found.push([from, cut.from]);
      from = Math.max(from, cut.upto);
    }
    if (from < view.end) found.push([from, view.end]);
    return found;
  }

  /* Breaks of the axis: torn edges, and how much time is left out between them. */
  T.drawBreaks = function ({ S, context, width, height, X, C }, top = T.AXIS) {
    for (const { from, upto, time } of T.breaks(S.about, S.view)) {
      const [a, b] = [Math.max(T.GUTTER, X(from)), Math.min(width, X(upto))];
      if (b - a < 1) continue;
      T.hatch(context, a, top, b - a, height - top, C);
      context.strokeStyle = C.soft;
      context.lineWidth = 1.2;
      for (const x of [X(from), X(upto)]) {
        if (x < T.GUTTER || x > width) continue;
        context.beginPath();
        for (let y = top, k = 0; y <= height; y += 6, k++) context.lineTo(x + (k % 2 ? 3 : -3), y);
        context.stroke();
      }
      const text = `${T.time(time, 3)} not recorded`;
      context.font = FONT;
      const wide = text.length * CHARACTER;
      context.save();
      context.translate((a + b) / 2, Math.min(height, top + 260) / 2 + top / 2);
      if (b - a < wide) context.rotate(-Math.PI / 2);
      context.fillStyle = C.paper;
      context.globalAlpha = 0.85;
      context.fillRect(-wide / 2, -9, wide, 18);
      context.globalAlpha = 1;
      context.fillStyle = C.ink;
      context.textBaseline = "middle";
      context.textAlign = "center";
      context.fillText(text, 0, 0);
      context.restore();
    }
  };

  function axis({ S, context, width, plot, span, X, C }) {
    context.fillStyle = C.paper;
    context.fillRect(0, 0, width, T.AXIS);
    const raw = span / Math.max(3, plot / 130);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw);
    context.font = FONT;
    context.textBaseline = "middle";
    let upto = T.GUTTER; // where the last mark's text ends
    for (const [begin, end] of pieces(S)) {
      const last = T.timeAt(S.about, end);
      for (let t = Math.ceil(T.timeAt(S.about, begin) / step) * step; t < last; t += step) {
        const x = X(T.placeOf(S.about, t));
        context.fillStyle = C.line;
        context.fillRect(x, T.AXIS - 6, 1, 6);
        context.fillStyle = C.soft;
        const text = T.moment(t, step);
        const wide = 4 + text.length * CHARACTER;
        if (x < upto || x + wide >= width) continue;
        context.fillText(text, x + 4, T.AXIS / 2 - 1);
        upto = x + wide;
      }
    }
    context.fillStyle = C.soft;
    const left = T.breaks(S.about, S.view).reduce((sum, cut) =>
      sum + Math.min(cut.upto, S.view.end) - Math.max(cut.from, S.view.start), 0);
    context.fillText(`${T.time(span - left, 3)} in view`, 8, T.AXIS / 2);
    context.fillStyle = C.line;
    context.fillRect(0, T.AXIS - 1, width, 1);
  }

  /* The whole recording: a line for each rank, and the part that is in view. */
  T.overview = function (S, context, size) {
    const { width, height, ratio } = size;
    const C = S.colours;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = C.head;
    context.fillRect(0, 0, width, height);
    const plot = width - T.GUTTER;
    const whole = S.about.high - S.about.low;
    if (S.small) {
      const lines = S.small.head.lanes;
      context.imageSmoothingEnabled = false;
      for (let k = 0; k < lines; k++) {
        const h = (height - 4) / lines;
        drawn(context, S.small, S.small.pictures, k, T.GUTTER, 2 + k * h, plot, h > 3 ? h - 1 : h);
      }
    }
    for (const [, , start, end] of S.about.cuts || []) { // what nobody recorded, between recordings
      const from = T.GUTTER + ((start - S.about.low) / whole) * plot;
      const upto = T.GUTTER + ((end - S.about.low) / whole) * plot;
      T.hatch(context, from, 1, Math.max(2, upto - from), height - 2, C);
    }
    const found = (S.wanted || S.path) && S.small && S.small.head.hits ? S.small.head.hits : [];
    context.fillStyle = C.accent;
    for (const [from, to] of found) {
      const cell = plot / S.small.head.cells;
      context.fillRect(T.GUTTER + from * cell, height - 4, Math.max(1, (to - from) * cell), 4);
    }
    context.font = FONT;
    context.textBaseline = "middle";
    context.fillStyle = C.soft;
    context.fillText(`all ${T.time(T.lasted(S.about, S.about.low, S.about.high), 3)}`, 8, height / 2);
    const a = T.GUTTER + ((S.view.start - S.about.low) / whole) * plot;
    const b = T.GUTTER + ((S.view.end - S.about.low) / whole) * plot;
    context.fillStyle = C.paper;
    context.globalAlpha = 0.62;
    context.fillRect(T.GUTTER, 0, a - T.GUTTER, height);
    context.fillRect(b, 0, width - b, height);
    context.globalAlpha = 1;
    context.strokeStyle = C.ink;
    context.lineWidth = 1.5;
    context.strokeRect(a, 1, Math.max(3, b - a), height - 2);
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
