/* Mouse and keys, as in Perfetto. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";

  T.listen = function (C) {
    mouse(C);
    keys(C);
    minimap(C);
    tools(C);
  };

  const time = ({ S, P }, x) =>
    S.view.start + ((x - T.GUTTER) / (P.canvas.size.width - T.GUTTER)) * (S.view.end - S.view.start);

  function mouse(C) {
    const { S, P } = C;
    const { canvas, scroller } = P;
    scroller.addEventListener("scroll", () => { S.scroll = scroller.scrollTop; C.redraw(); C.refresh(); });
    canvas.addEventListener("wheel", (event) => {
      const share = Math.max(0, (event.offsetX - T.GUTTER) / (P.canvas.size.width - T.GUTTER));
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        C.zoom(Math.exp(event.deltaY * 0.003), share, true);
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        C.pan((event.deltaX || event.deltaY) / P.canvas.size.width, true);
      }
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => down(C, event));
    canvas.addEventListener("pointermove", (event) => move(C, event));
    canvas.addEventListener("pointerup", (event) => up(C, event));
    canvas.addEventListener("pointercancel", () => { S.drag = null; });
    canvas.addEventListener("pointerleave", () => { S.pointer = S.hover = null; T.tip(S, P.tip, null); C.redraw(); });
    canvas.addEventListener("dblclick", (event) => { if (C.at(event.offsetX, event.offsetY)) C.focus(); });
  }

  function down(C, event) {
    const { S, P } = C;
    if (event.button) return;
    P.canvas.focus({ preventScroll: true });
    const x = event.offsetX;
    const y = event.offsetY;
    if (x < T.GUTTER) {
      S.drag = { mode: "fold", x, y, row: T.rowUnder(S, y), line: null, before: null };
      P.canvas.setPointerCapture(event.pointerId);
      return;
    }
    P.canvas.setPointerCapture(event.pointerId);
    const mode = event.shiftKey || y < T.AXIS ? "select" : "pan";
    S.goal = null;
    S.drag = { mode, x, y, view: { ...S.view }, top: S.scroll, from: time(C, x), moved: 0 };
  }

  function move(C, event) {
    const { S, P } = C;
    const x = event.offsetX;
    const y = event.offsetY;
    S.pointer = { x, y };
    const drag = S.drag;
    if (drag && (drag.mode === "fold" || drag.mode === "track")) {
      if (drag.row && !drag.row.head && Math.abs(y - drag.y) > 4) drag.mode = "track";
      if (drag.mode === "track") Object.assign(drag, T.dropOf(S, drag.row.key, y));
      C.redraw();
      return;
    }
    if (!drag) {
      const hit = C.at(x, y);
      S.hover = hit;
      const counted = hit ? null : C.counterAt(x, y);
      if (counted) T.counterTip(S, P.tip, counted, x, y);
      else T.tip(S, P.tip, hit, x, y);
      P.canvas.style.cursor = x < T.GUTTER || hit ? "pointer" : "grab";
      C.redraw();
      return;
    }
    T.tip(S, P.tip, null);
    drag.moved = Math.max(drag.moved, Math.abs(x - drag.x), Math.abs(y - drag.y));
    if (drag.mode === "pan" && drag.moved > 2) {
      const by = ((x - drag.x) / (P.canvas.size.width - T.GUTTER)) * (drag.view.end - drag.view.start);
      P.canvas.style.cursor = "grabbing";
      P.scroller.scrollTop = drag.top - (y - drag.y);
      C.go(drag.view.start - by, drag.view.end - by, true);
    }
    if (drag.mode === "select") {
      const ends = [drag.from, time(C, x)].sort((a, b) => a - b);
      S.range = { start: ends[0], end: ends[1] };
      drag.box = { x0: drag.x, y0: drag.y, x1: x, y1: y };
      C.redraw();
    }
  }

  function up(C, event) {
    const { S } = C;
    const drag = S.drag;
    S.drag = null;
    if (!drag) return;
    const x = event.offsetX;
    const y = event.offsetY;
    if (drag.mode === "track") {
      if (drag.line !== null) T.moveTrack(C, drag.row.key, drag.before);
    } else if (drag.mode === "fold") {
      const isPin = drag.row && !drag.row.head && drag.row.label && x > T.GUTTER - T.PIN;
      if (isPin) T.pinTrack(C, drag.row.key);
      else C.fold(drag.row);
    } else if (drag.moved < 3 && drag.y < T.AXIS && T.noteAt(C, x)) {
      T.showNotes(C);
    } else if (drag.moved < 3) {
      const hit = C.at(x, y);
      if (hit) C.select({ id: hit.id });
      else C.clear();
    } else if (drag.mode === "select") {
      const tall = Math.abs(y - drag.y) > T.LANE * 1.5 && drag.y > T.AXIS;
      C.mark(drag.from, time(C, x), tall ? between(S, drag.y, y) : null);
    }
    C.redraw();
  }

  /* Lanes between two heights of the canvas. */
  function between(S, a, b) {
    const [low, high] = [Math.min(a, b), Math.max(a, b)];
    const edge = T.AXIS + S.rows.pinned;
    const isBetween = (row) => {
      const top = T.screenY(S, row.y);
      return top + row.h > low && top < high && (row.pinned || top + row.h > edge);
    };
    return S.rows.list.filter((row) => row.lane >= 0 && isBetween(row)).map((row) => row.lane).sort((p, q) => p - q);
  }

  function keys(C) {
    const { S, P } = C;
    const scroll = (by) => { P.scroller.scrollTop += by; };
    const acts = {
      w: () => C.zoom(0.6), s: () => C.zoom(1 / 0.6), a: () => C.pan(-0.2), d: () => C.pan(0.2),
      "+": () => C.zoom(0.6), "=": () => C.zoom(0.6), "-": () => C.zoom(1 / 0.6),
      arrowleft: () => C.pan(-0.2), arrowright: () => C.pan(0.2),
      arrowup: () => scroll(-3 * T.LANE), arrowdown: () => scroll(3 * T.LANE),
      pageup: () => scroll(-P.scroller.clientHeight), pagedown: () => scroll(P.scroller.clientHeight),
      0: () => C.go(S.about.low, S.about.high), f: () => C.focus(), l: () => C.jump("longest", S.selected ? "" : S.wanted),
      m: () => { if (S.selected) C.mark(S.selected.start, S.selected.end); },
      ".": () => C.jump("next"), ",": () => C.jump("previous"), "[": () => C.follow(false), "]": () => C.follow(true),
      n: () => T.noteHere(C), t: () => T.showTracks(C),
      p: () => { if (!P.path.hidden) C.criticalPath(); },
      enter: () => C.enter(1), backspace: () => C.enter(-1),
      "/": () => P.search.focus(), "?": () => T.showKeys(P.panel), escape: () => C.clear(),
    };
    P.canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = acts[event.key.toLowerCase()];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }

  function minimap(C) {
    const { S, P } = C;
    let on = false;
    const to = (event) => {
      const share = (event.offsetX - T.GUTTER) / (P.small.size.width - T.GUTTER);
      const middle = S.about.low + share * (S.about.high - S.about.low);
      const half = (S.view.end - S.view.start) / 2;
      C.go(middle - half, middle + half, true);
    };
    P.small.addEventListener("pointerdown", (event) => { on = true; P.small.setPointerCapture(event.pointerId); to(event); });
    P.small.addEventListener("pointermove", (event) => { if (on) to(event); });
    P.small.addEventListener("pointerup", () => { on = false; });
  }

  function tools(C) {
    const { S, P } = C;
    let wait = 0;
    let filterWait = 0;
    P.search.addEventListener("input", () => {
      clearTimeout(wait);
      wait = setTimeout(() => C.search(P.search.value), 120);
    });
    P.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") C.jump(event.shiftKey ? "previous" : "next", P.search.value.trim());
      if (event.key !== "Escape") return;
      event.preventDefault();
      clearTimeout(wait);
      C.search("");
      P.canvas.focus();
    });
    P.tracks.addEventListener("input", () => {
      clearTimeout(filterWait);
      filterWait = setTimeout(() => T.filterTracks(C, P.tracks.value), 120);
    });
    P.tracks.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      clearTimeout(filterWait);
      T.filterTracks(C, "");
      P.canvas.focus();
    });
    P.arrange.onclick = () => T.showTracks(C);
    P.notes.onclick = () => T.showNotes(C);
    P.before.onclick = () => C.jump("previous", S.wanted);
    P.next.onclick = () => C.jump("next", S.wanted);
    P.longest.onclick = () => C.jump("longest", S.wanted);
    P.bar.querySelectorAll("button.recording").forEach((button) => {
      button.onclick = () => {
        const [start, end] = [Number(button.dataset.start), Number(button.dataset.end)];
        const margin = (end - start) * 0.02;
        C.go(start - margin, end + margin, true);
      };
    });
    P.all.onclick = () => C.go(S.about.low, S.about.high);
    P.align.onclick = () => C.align(!S.aligned);
    P.path.onclick = () => C.criticalPath();
    P.help.onclick = () => T.showKeys(P.panel);
  }
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
