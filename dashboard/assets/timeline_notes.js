/* Notes on moments and spans of time: they travel in the link, and are kept nowhere else. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const el = T.element;
  const FONT = "11px system-ui, sans-serif";
  const MOST = 50;
  const MOST_TEXT = 200;
  const NEAR = 7; // pixels from a flag

  /* As the address holds them, and back; what is no note is left out. */
  T.notesText = (notes) => T.joined(notes.map((note) => `${note.start}..${note.end} ${note.text}`));
  T.notesOf = function (text) {
    const matches = T.split(text).map((one) => /^(-?\d{1,18})\.\.(-?\d{1,18}) (.+)$/s.exec(one)).filter((m) => m);
    return matches.slice(0, MOST).map((m) => ({ start: Number(m[1]), end: Number(m[2]), text: m[3].slice(0, MOST_TEXT) }))
      .filter((note) => note.end >= note.start);
  };

  const marks = ({ S, X, width }) => S.notes.map((note) => ({ note, x: X(note.start) }))
    .filter(({ x }) => x >= T.GUTTER - 1 && x <= width);

  T.noteBands = function (G) {
    const { S, context, X, height, C } = G;
    context.fillStyle = C.accent;
    for (const note of S.notes) {
      const a = X(note.start);
      const b = X(note.end);
      context.globalAlpha = 0.07;
      if (b > a) context.fillRect(a, T.AXIS, b - a, height);
      context.globalAlpha = 0.7;
      context.fillRect(a, T.AXIS, 1, height);
    }
    context.globalAlpha = 1;
  };

  T.noteFlags = function (G) {
    const { context, C } = G;
    context.font = FONT;
    context.textBaseline = "middle";
    for (const { note, x } of marks(G)) {
      const text = T.short(note.text, 18);
      const wide = context.measureText(text).width + 10;
      context.fillStyle = C.accent;
      context.fillRect(x, 3, wide, T.AXIS - 9);
      context.fillRect(x, 3, 1.5, T.AXIS - 3);
      context.fillStyle = C.paper;
      context.fillText(text, x + 5, T.AXIS / 2 - 0.5);
    }
  };

  /* The note whose flag stands at a place of the axis. */
  T.noteAt = function (C, x) {
    const { S, P } = C;
    const plot = P.canvas.size.width - T.GUTTER;
    const at = (note) => T.GUTTER + ((note.start - S.view.start) / (S.view.end - S.view.start)) * plot;
    return [...S.notes].reverse().find((note) => x >= at(note) - NEAR && x <= at(note) + NEAR + 6 * Math.min(18, note.text.length)) || null;
  };

  const button = (text, onclick) => el("button", { type: "button", onclick }, text);
  const when = (about, note) => `${T.moment(T.timeAt(about, note.start), 1)}${
    note.end > note.start ? `, ${T.time(T.lasted(about, note.start, note.end))} long` : ""}`;

  function changed(C) {
    C.P.notes.hidden = !C.S.notes.length;
    C.P.notes.textContent = `Notes (${C.S.notes.length})`;
    C.redraw();
    C.remember();
  }

  T.setNotes = function (C, notes) {
    C.S.notes = [...notes].sort((a, b) => a.start - b.start).slice(0, MOST);
    changed(C);
  };

  /* Asks for the words of a new note, or of one that is there. */
  T.writeNote = function (C, note) {
    const { S, P } = C;
    const isNew = !S.notes.includes(note);
    const field = el("input", { type: "text", maxlength: MOST_TEXT, "aria-label": "the note", placeholder: "What is to be seen here?" });
    field.value = note.text;
    const save = (event) => {
      event.preventDefault();
      const text = field.value.trim();
      if (!text) return;
      const saved = { ...note, text };
      T.setNotes(C, [...S.notes.filter((other) => other !== note), saved]);
      T.showNotes(C);
      P.canvas.focus({ preventScroll: true });
    };
    const full = isNew && S.notes.length >= MOST;
    P.panel.replaceChildren(el("h3", {}, `${isNew ? "A note" : "The note"} at ${when(S.about, note)}`),
      full ? el("p", { class: "hint", role: "alert" }, `A link holds ${MOST} notes at most; delete one first.`)
        : el("form", { class: "tools note", onsubmit: save }, field, el("button", { type: "submit" }, "Save"),
          button("Cancel", () => T.showNotes(C))),
      el("p", { class: "hint" }, "Notes stand in the link of this page and nowhere else: copy it to share them."));
    if (!full) field.focus();
  };

  /* A new note where something is selected or marked, else where the pointer or the middle is. */
  T.noteHere = function (C) {
    const { S, P } = C;
    const of = S.range || S.selected;
    const { width } = P.canvas.size;
    const x = S.pointer && S.pointer.x > T.GUTTER ? (S.pointer.x - T.GUTTER) / (width - T.GUTTER) : 0.5;
    const t = Math.round(S.view.start + x * (S.view.end - S.view.start));
    T.writeNote(C, { start: Math.round(of ? of.start : t), end: Math.round(of ? of.end : t), text: "" });
  };

  T.showNotes = function (C) {
    const { S, P } = C;
    if (!S.notes.length) { T.hint(S, P.panel); return; }
    const visit = (note) => {
      const margin = note.end > note.start ? (note.end - note.start) * 0.3 : (S.view.end - S.view.start) / 2;
      C.go(note.start - margin, note.end + margin);
    };
    const line = (note) => el("li", {},
      button("Go", () => visit(note)), button("Edit", () => T.writeNote(C, note)),
      button("Delete", () => { T.setNotes(C, S.notes.filter((other) => other !== note)); T.showNotes(C); }),
      el("span", {}, el("b", {}, note.text), ` at ${when(S.about, note)}`));
    P.panel.replaceChildren(el("h3", {}, "Notes"), el("ul", { class: "tracks" }, ...S.notes.map(line)));
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
