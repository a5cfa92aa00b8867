/* Which tracks are pinned, in what order they lie and which of them are shown. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const el = T.element;
  const MOST_LISTED = 300;

  T.pinTrack = function (C, key) {
    const { S } = C;
    const track = T.tracks(S.about).get(key);
    if (!track || track.section === "busy") return;
    S.pinned = S.pinned.includes(key) ? S.pinned.filter((other) => other !== key) : [...S.pinned, key];
    C.arrange();
  };

  T.filterTracks = function (C, text) {
    C.S.filterText = text.trim();
    if (C.P.tracks.value.trim() !== C.S.filterText) C.P.tracks.value = C.S.filterText;
    C.P.scroller.scrollTop = 0;
    C.arrange();
  };

  /* Tracks that a track may change places with: the pinned ones, or those of its rank. */
  function neighbours(S, key) {
    if (S.pinned.includes(key)) return [...S.pinned];
    const all = T.tracks(S.about);
    const { rank } = all.get(key);
    const rows = T.rows(S.about, new Set(), { order: S.order });
    const keys = rows.list.filter((row) => !row.head && row.rank === rank && !row.depth).map((row) => row.key);
    return keys.filter((other) => !S.pinned.includes(other));
  }

  /* Puts a track before another of its neighbours, or last. */
  T.moveTrack = function (C, key, before) {
    const { S } = C;
    const keys = neighbours(S, key);
    if (before !== null && !keys.includes(before)) return;
    const moved = keys.filter((other) => other !== key);
    moved.splice(before === null ? moved.length : before === key ? keys.indexOf(key) : moved.indexOf(before), 0, key);
    if (S.pinned.includes(key)) S.pinned = moved;
    else S.order = [...S.order.filter((other) => !moved.includes(other)), ...moved];
    C.arrange();
  };

  function step(C, key, by) {
    const keys = neighbours(C.S, key);
    const to = keys.indexOf(key) + by;
    if (to < 0 || to >= keys.length) return;
    T.moveTrack(C, key, by < 0 ? keys[to] : keys[to + 1] || null);
  }

  /* Where a dragged track would go: the height of the line, and the track that it would stand before. */
  T.dropOf = function (S, key, y) {
    const keys = neighbours(S, key);
    const firsts = S.rows.list.filter((row) => !row.head && !row.depth && keys.includes(row.key));
    const below = firsts.find((row) => y < T.screenY(S, row.y) + row.h / 2);
    if (below) return { line: T.screenY(S, below.y), before: below.key };
    const own = S.rows.list.filter((row) => keys.includes(row.key));
    const last = own[own.length - 1];
    return last ? { line: T.screenY(S, last.y) + last.h, before: null } : { line: null, before: key };
  };

  /* The tracks as a list: what the pointer does in the margin, for keys and readers of screens. */
  T.showTracks = function (C) {
    const { S, P } = C;
    const { rows } = S;
    const listed = rows.list.filter((row) => !row.head && !row.depth).slice(0, MOST_LISTED);
    const again = (act) => () => { act(); T.showTracks(C); };
    const line = (row) => {
      const pinned = S.pinned.includes(row.key);
      const name = row.pinned || row.rank < 0 ? row.label : `${T.rankKey(row.rank)} · ${row.label}`;
      const act = (text, title, what) =>
        el("button", { type: "button", title, "aria-label": `${title}: ${name}`, onclick: again(what) }, text);
      return el("li", {}, act(pinned ? "Unpin" : "Pin", pinned ? "let it scroll" : "keep it on top", () => T.pinTrack(C, row.key)),
        act("↑", "move up", () => step(C, row.key, -1)), act("↓", "move down", () => step(C, row.key, 1)),
        el("span", { class: pinned ? "pinned" : "" }, name));
    };
    const back = el("button", { type: "button", onclick: again(() => {
      Object.assign(S, { pinned: [], order: [] });
      T.filterTracks(C, "");
    }) }, "All as at first");
    const changed = S.pinned.length || S.order.length || S.filterText;
    P.panel.replaceChildren(el("h3", {}, "Tracks"),
      el("p", { class: "hint" }, "Pinned tracks stay on top. In the margin of the picture: the pin pins a track, "
        + "dragging moves it. The link holds all of it."),
      changed ? el("div", { class: "tools" }, back) : "",
      el("ul", { class: "tracks" }, ...listed.map(line)),
      listed.length === MOST_LISTED ? el("p", { class: "hint" }, `the first ${MOST_LISTED}; filter them`) : "");
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
