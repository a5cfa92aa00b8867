/* The parts of the page that the timeline is made of. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const el = T.element;

  T.parts = function (place, about, options) {
    const search = el("input", { type: "search", placeholder: "Search names  ( / )", "aria-label": "search names" });
    const tracks = el("input", { type: "search", class: "filter", placeholder: "Filter tracks", "aria-label": "filter tracks",
      title: "words of a track, such as rank 3 stream" });
    const found = el("span", { class: "found", role: "status" });
    const button = (text, title, pressed) =>
      el("button", { type: "button", title, "aria-pressed": pressed ? "false" : null }, text);
    const all = button("All", "show everything (0)");
    const before = button("‹", "previous match");
    const next = button("›", "next match");
    const longest = button("Longest", "the longest match");
    const align = button("Align clocks", "put all ranks on one clock, as their collectives tell it", true);
    const path = button("Critical path", "show what bounds the step (P)", true);
    const arrange = button("Tracks", "pin and move tracks (T)");
    const notes = button("Notes", "all notes; N writes one");
    const help = button("?", "keys and mouse");
    for (const hidden of [before, next, longest, notes]) hidden.hidden = true;
    align.hidden = !about.can_align;
    path.hidden = !about.can_path;
    const legend = el("div", { class: "legend" });
    const badges = el("div", { class: "badges" });
    for (const text of options.badges || []) badges.append(el("span", { class: "badge" }, text));
    const merged = el("span", { class: "badge" }, "some events merged: zoom in");
    merged.hidden = true;
    badges.append(merged);
    const small = el("canvas", { class: "small", "aria-hidden": "true" });
    const canvas = el("canvas", { class: "main", tabindex: "0", role: "application",
      "aria-label": "Timeline. W and S zoom, A and D pan, arrow keys scroll, 0 shows all, question mark lists all keys." });
    const spacer = el("div", { class: "spacer" });
    const scroller = el("div", { class: "scroller" }, canvas, spacer);
    const tip = el("div", { class: "tip" });
    tip.hidden = true;
    const panel = el("div", { class: "panel", "aria-live": "polite" });
    const recordings = about.recordings || [];
    const jumps = recordings.length < 2 ? [] : recordings.map(([start, end], k) =>
      el("button", { type: "button", class: "recording", "data-start": start, "data-end": end,
        title: `${T.time(end - start, 3)}, ${T.time(T.timeAt(about, start), 3)} after the first began` },
      `Recording ${k + 1} of ${recordings.length}`));
    if (about.unrecorded_ranks) {
      const ranks = about.unrecorded_ranks === 1 ? "1 rank" : `${about.unrecorded_ranks} ranks`;
      badges.append(el("span", { class: "badge unrecorded" }, `${ranks} of the job not recorded`));
    }
    const bar = el("div", { class: "bar" }, search, before, next, longest, found, tracks, arrange, all, ...jumps, align, path, notes, help,
      badges);
    place.classList.add("htk-timeline");
    place.replaceChildren(bar, legend, small, el("div", { class: "stage" }, scroller, tip), panel);
    return { place, bar, search, tracks, arrange, notes, found, before, next, longest, all, align, path, help, legend, merged, small,
      canvas, spacer, scroller, tip, panel };
  };

  T.legend = function (S, place) {
    const used = new Set(S.about.kind_of);
    const items = S.about.kinds.filter((_, k) => used.has(k)).map((kind) =>
      el("span", { class: "item" }, T.swatch(S, kind), T.WORDS[kind]));
    place.replaceChildren(...items, el("span", { class: "item" }, `${T.count(S.about.events)} events`));
  };

  T.tip = function (S, place, hit, x, y) {
    if (!hit) { place.hidden = true; return; }
    const lane = S.about.lanes[hit.lane];
    const step = S.about.steps.find((s) => s[1] === lane[0] && hit.start >= s[3] && hit.start < s[4]);
    const length = T.lasted(S.about, hit.start, hit.end);
    const whole = T.lasted(S.about, S.view.start, S.view.end);
    const isOpen = S.about.kinds[S.about.kind_of[hit.name]] === "pending";
    place.replaceChildren(...[
      el("strong", {}, T.short(S.about.names[hit.name], 72)),
      isOpen || !length ? null : el("div", {}, `${T.time(length)}${length < whole ? ` · ${((100 * length) / whole).toPrecision(2)} % of the view` : ""}`),
      el("div", {}, `at ${T.moment(T.timeAt(S.about, hit.start), Math.max(1, length / 10))}${step ? ` · step ${step[2]}` : ""}`),
      el("div", {}, `${lane[0] >= 0 ? `rank ${lane[0]} · ` : ""}${lane[2]}`),
    ].filter(Boolean));
    shown(place, x, y);
  };

  /* What a counter is at the pointer: one value, or between which it is within a pixel. */
  T.counterTip = function (S, place, { counter, rank, time, low, high }, x, y) {
    const text = (value) => T.value(value, counter.unit);
    const value = Number.isNaN(high) ? "not recorded" : low === high ? text(high) : `${text(low)} to ${text(high)}`;
    const step = (S.view.end - S.view.start) / 1000;
    place.replaceChildren(el("strong", {}, value), el("div", {}, counter.name),
      el("div", {}, `at ${T.moment(T.timeAt(S.about, time), Math.max(1, step))}${rank >= 0 ? ` · rank ${rank}` : ""}`));
    shown(place, x, y);
  };

  /* Beside the pointer, within the picture. */
  function shown(place, x, y) {
    place.hidden = false;
    const width = place.parentElement.clientWidth;
    place.style.left = `${Math.max(0, Math.min(x + 14, width - place.offsetWidth - 8))}px`;
    place.style.top = `${y + 18 + place.offsetHeight > place.parentElement.clientHeight ? y - place.offsetHeight - 8 : y + 18}px`;
  }
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
