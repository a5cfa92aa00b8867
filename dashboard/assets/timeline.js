/* The timeline: a canvas that asks for the level of detail its pixels can show.
   Transport-agnostic: `source.view(start, end, width)` gives a Promise of an ArrayBuffer. */
(function (global) {
  "use strict";
  const LIGHT = ["#0898FF", "#C7830E", "#06371F", "#737373", "#67067A"];
  const DARK = ["#0884FF", "#C47C00", "#3BFF9D", "#6A6A6A", "#F3C5FC"];
  const TYPES = {
    density: Uint8Array, dominant: Uint8Array, kind: Uint8Array, x: Float32Array, w: Float32Array,
    name: Uint32Array, table: Uint32Array, row: Uint32Array, lane: Uint16Array,
  };
  const LANE = 15;
  const AXIS = 20;

  function unpack(buffer) {
    const size = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    const data = { head };
    for (const [name, offset, length] of head.arrays) {
      const Type = TYPES[name];
      data[name] = new Type(buffer, 4 + size + offset, length / Type.BYTES_PER_ELEMENT);
    }
    return data;
  }

  function time(ns) {
    const a = Math.abs(ns);
    if (a >= 1e9) return `${(ns / 1e9).toPrecision(4)} s`;
    if (a >= 1e6) return `${(ns / 1e6).toPrecision(4)} ms`;
    if (a >= 1e3) return `${(ns / 1e3).toPrecision(4)} µs`;
    return `${Math.round(ns)} ns`;
  }

  function rgb(hex) {
    return [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  }

  function mount(place, about, source, options) {
    const colours = options.dark ? DARK : LIGHT;
    const ink = options.dark ? "#E5E7EB" : "#111827";
    const paper = options.dark ? "#1f2937" : "#ffffff";
    const canvas = document.createElement("canvas");
    const pane = document.createElement("canvas");
    const height = AXIS + about.labels.length * LANE;
    canvas.height = height;
    canvas.style.height = `${height}px`;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "Timeline; W and S zoom, A and D pan, 0 shows all");
    place.appendChild(canvas);
    const context = canvas.getContext("2d");
    let view = { start: 0, end: about.length };
    let shown = null;
    let selected = null;
    let busy = false;
    let again = false;
    let frame = 0;

    function fit() {
      canvas.width = Math.max(200, canvas.clientWidth || place.clientWidth);
    }

    function paint(data) {
      const { width, lanes } = data.head;
      pane.width = width;
      pane.height = Math.max(1, lanes);
      if (!lanes) return;
      const image = pane.getContext("2d").createImageData(width, lanes);
      const palette = colours.map(rgb);
      for (let i = 0; i < width * lanes; i++) {
        if (!data.density[i]) continue;
        const colour = palette[data.dominant[i]];
        image.data.set([...colour, Math.max(40, data.density[i])], 4 * i);
      }
      pane.getContext("2d").putImageData(image, 0, 0);
    }

    function axis() {
      const span = view.end - view.start;
      const raw = span / 8;
      const power = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw);
      context.fillStyle = ink;
      context.font = "11px system-ui";
      for (let t = Math.ceil(view.start / step) * step; t < view.end; t += step) {
        const x = ((t - view.start) / span) * canvas.width;
        context.fillRect(x, AXIS - 5, 1, 5);
        context.fillText(time(t), x + 3, AXIS - 7);
      }
    }

    function draw() {
      frame = 0;
      context.fillStyle = paper;
      context.fillRect(0, 0, canvas.width, height);
      axis();
      if (!shown) return;
      const span = view.end - view.start;
      const scale = ((shown.end - shown.start) / span) * canvas.width;
      const left = ((shown.start - view.start) / span) * canvas.width;
      context.imageSmoothingEnabled = false;
      if (shown.head.lanes) {
        context.drawImage(pane, 0, 0, pane.width, pane.height, left, AXIS, scale, pane.height * LANE);
      }
      for (let i = 0; i < (shown.head.count || 0); i++) {
        const x = left + shown.x[i] * scale;
        const w = Math.max(1, shown.w[i] * scale);
        if (x + w < 0 || x > canvas.width) continue;
        const y = AXIS + shown.lane[i] * LANE;
        context.fillStyle = colours[shown.kind[i]];
        context.fillRect(x, y, w > 3 ? w - 0.5 : w, LANE - 1);
        const name = about.names[shown.name[i]];
        if (w > 40) label(name, Math.max(0, x), y, Math.min(w, canvas.width - Math.max(0, x)));
        const hit = options.found && options.found(name);
        if (hit || (selected && selected.row === shown.row[i] && selected.table === shown.table[i])) {
          context.strokeStyle = ink;
          context.lineWidth = 2;
          context.strokeRect(x, y, Math.max(2, w), LANE - 1);
        }
      }
    }

    function label(text, x, y, width) {
      context.save();
      context.beginPath();
      context.rect(x, y, width - 2, LANE);
      context.clip();
      context.fillStyle = "#ffffff";
      context.font = "10px system-ui";
      context.fillText(text, x + 2, y + LANE - 4);
      context.restore();
    }

    const redraw = () => { frame = frame || requestAnimationFrame(draw); };

    async function refresh() {
      if (busy) { again = true; return; }
      busy = true;
      do {
        again = false;
        const asked = { ...view };
        try {
          const data = unpack(await source.view(asked.start, asked.end, canvas.width));
          shown = { ...data, ...asked };
          paint(data);
          redraw();
        } catch (error) {
          again = false;
        }
      } while (again);
      busy = false;
    }

    function go(start, end) {
      const span = Math.min(about.length, Math.max(100, end - start));
      const from = Math.max(0, Math.min(about.length - span, start));
      view = { start: from, end: from + span };
      redraw();
      refresh();
    }

    function zoom(factor, x) {
      const centre = view.start + x * (view.end - view.start);
      go(centre - (centre - view.start) * factor, centre + (view.end - centre) * factor);
    }

    function at(event) {
      const lane = Math.floor((event.offsetY - AXIS) / LANE);
      const t = view.start + (event.offsetX / canvas.clientWidth) * (view.end - view.start);
      const span = shown ? shown.end - shown.start : 0;
      for (let i = (shown && shown.head.count) - 1; i >= 0; i--) {
        const a = shown.start + shown.x[i] * span;
        const slack = (view.end - view.start) / canvas.width;
        if (shown.lane[i] === lane && t >= a - slack && t <= a + shown.w[i] * span + slack) {
          return { table: shown.table[i], row: shown.row[i] };
        }
      }
      return null;
    }

    let drag = null;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && event.deltaX === 0 && !event.altKey) {
        event.preventDefault();
        zoom(Math.exp(event.deltaY * 0.002), event.offsetX / canvas.clientWidth);
      }
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.offsetX, ...view, moved: 0 };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const by = ((event.offsetX - drag.x) / canvas.clientWidth) * (drag.end - drag.start);
      drag.moved = Math.max(drag.moved, Math.abs(event.offsetX - drag.x));
      go(drag.start - by, drag.end - by);
    });
    canvas.addEventListener("pointerup", (event) => {
      const was = drag;
      drag = null;
      if (was && was.moved < 3) {
        selected = at(event);
        redraw();
        options.select(selected);
      }
    });
    canvas.addEventListener("keydown", (event) => {
      const span = view.end - view.start;
      const keys = {
        a: () => go(view.start - span * 0.2, view.end - span * 0.2),
        d: () => go(view.start + span * 0.2, view.end + span * 0.2),
        w: () => zoom(0.7, 0.5),
        s: () => zoom(1.4, 0.5),
        0: () => go(0, about.length),
      };
      const same = { ArrowLeft: "a", ArrowRight: "d", "+": "w", "-": "s" };
      const act = keys[same[event.key] || event.key];
      if (act) { event.preventDefault(); act(); }
    });
    new ResizeObserver(() => { fit(); redraw(); refresh(); }).observe(place);
    fit();
    refresh();
    return { go, redraw, view: () => view, count: () => (shown ? shown.head.count : -1) };
  }

  global.htkTimeline = { mount, time, LANE, AXIS, LIGHT, DARK };
})(window);
