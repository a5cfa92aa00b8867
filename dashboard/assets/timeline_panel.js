/* Under the picture: everything known of an event, or what runs in a marked span of time. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const el = T.element;
  const ARROWS = { launch: ["launched by", "launched"], backward: ["forward", "backward"],
    collective: ["the rank that began last", "on another rank"] };

  function button(text, title, act) {
    return el("button", { type: "button", title, onclick: act }, text);
  }

  function swatch(S, kind) {
    const [fill, border] = S.colours.kinds[kind];
    return el("span", { class: "swatch", style: `background:${fill};border-color:${border || fill}` });
  }
  T.swatch = swatch;

  function pairs(rows) {
    const list = el("dl", {});
    for (const [label, value] of rows) list.append(el("dt", {}, label), el("dd", {}, value));
    return list;
  }

  T.hint = function (S, place) {
    place.replaceChildren(el("p", { class: "hint" },
      "Click an event for all that is known of it. Shift-drag marks a span of time. ",
      "W A S D zoom and pan, ? shows all keys."));
  };

  T.trouble = function (place, text) {
    place.replaceChildren(el("p", { class: "hint", role: "alert" }, text));
  };

  T.showEvent = function (S, place, act) {
    const found = S.selected;
    const lane = S.about.lanes[found.lane];
    const lasted = T.time(T.lasted(S.about, found.start, found.end));
    const basics = [
      ["duration", found.kind === "pending" ? "it had not ended when this was written down" : found.open ? "not recorded" : lasted],
      ["starts at", T.moment(T.timeAt(S.about, found.start), 1)],
      ["where", `${lane[0] >= 0 ? `rank ${lane[0]}, ` : ""}${lane[2]}`],
    ];
    const facts = basics.concat(found.facts || []);
    const half = Math.max(6, Math.ceil(facts.length / 2));
    const tools = el("div", { class: "tools" },
      button("Focus", "bring it into view (F)", act.focus),
      button("‹ Same name", "the one before (,)", () => act.jump("previous")),
      button("Same name ›", "the next one (.)", () => act.jump("next")),
      button("Longest", "the longest of this name (L)", () => act.jump("longest")),
      button("Note", "write a note here; it travels in the link (N)", act.note),
      button("Copy", "copy all of this as text", () => copy(found, basics)));
    for (const [text, address] of found.pages || []) {
      tools.append(el("a", { href: address, class: "page" }, text));
    }
    const linked = el("div", { class: "linked" });
    const own = (found.arrows || []).filter((arrow) => found.id === arrow.from[2] || found.id === arrow.to[2]);
    own.slice(0, 24).forEach((arrow) => {
      const out = arrow.from[2] === found.id;
      const other = out ? arrow.to : arrow.from;
      const where = S.about.lanes[other[0]];
      const gap = T.lasted(S.about, arrow.from[1], arrow.to[1]);
      linked.append(button(
        `${ARROWS[arrow.kind][out ? 1 : 0]}: ${where[0] >= 0 ? `rank ${where[0]}, ` : ""}${where[2]}, ${out ? "+" : "−"}${T.time(Math.abs(gap), 3)}`,
        "go there", () => act.select(other[2])));
    });
    const others = (found.arrows || []).length - own.length;
    if (own.length > 24) linked.append(el("div", {}, `${own.length - 24} more`));
    if (others) linked.append(el("div", {}, `${others} others wait for it`));
    place.replaceChildren(
      el("h3", {}, swatch(S, found.kind), el("span", { class: "name" }, found.name)),
      tools,
      el("div", { class: "columns" },
        pairs(facts.slice(0, half)),
        pairs(facts.slice(half)),
        linked.childElementCount ? el("div", {}, el("h4", {}, "Connected"), linked) : null));
  };

  function copy(found, basics) {
    const lines = [["name", found.name], ...basics, ...(found.facts || [])];
    navigator.clipboard.writeText(lines.map(([k, v]) => `${k}\t${v}`).join("\n"));
  }

  function table(heads, rows) {
    const body = rows.map((row) => el("tr", {}, ...row.map((cell, k) =>
      el("td", { class: k ? "number" : "" }, ...(Array.isArray(cell) ? cell : [cell])))));
    return el("table", {},
      el("thead", {}, el("tr", {}, ...heads.map((h, k) =>
        el("th", { scope: "col", class: k ? "number" : "" }, ...(Array.isArray(h) ? h : [h]))))),
      el("tbody", {}, ...body));
  }

  /* A row for each rank, a column for each kind; of one rank, a row for each kind. */
  function kindsTable(S, cells, share) {
    const ranks = [...new Set(cells.map(([rank]) => rank))];
    const kinds = S.about.kinds.filter((kind) => cells.some((cell) => cell[1] === kind));
    const named = (kind) => [swatch(S, kind), T.WORDS[kind]];
    if (ranks.length < 2) {
      return table(["kind", "time", "of the span"], cells.map(([, kind, ns]) => [named(kind), T.time(ns), share(ns)]));
    }
    const of = new Map(cells.map(([rank, kind, ns]) => [`${rank} ${kind}`, ns]));
    const line = (rank) => kinds.map((kind) => {
      const ns = of.get(`${rank} ${kind}`);
      return ns === undefined ? "–" : [el("span", { title: share(ns) }, T.time(ns, 3))];
    });
    return el("div", { class: "wide" },
      table(["rank", ...kinds.map(named)], ranks.map((rank) => [rank < 0 ? "unknown" : String(rank), ...line(rank)])));
  }

  T.showStats = function (S, place, found, act) {
    const whole = Math.max(1, T.lasted(S.about, found.start, found.end));
    const share = (ns) => `${((100 * ns) / whole).toFixed(1)} %`;
    const name = (code) => {
      const text = S.about.names[code];
      const kind = S.about.kinds[S.about.kind_of[code]];
      return [el("span", { class: "named", title: text }, swatch(S, kind), text)];
    };
    place.replaceChildren(
      el("h3", {}, el("span", { class: "name" },
        `${T.time(whole)} marked, from ${T.moment(T.timeAt(S.about, found.start), Math.max(1, whole / 1000))}; ${T.count(found.spans)} events`)),
      el("div", { class: "tools" },
        button("Focus", "bring it into view (F)", act.focus),
        act.filter ? button("Look at this time alone, on every page", "sets the filters from and to", act.filter) : null,
        button("Note", "write a note here; it travels in the link (N)", act.note),
        button("Clear", "Escape", act.clear)),
      el("div", { class: "columns" },
        el("div", {}, el("h4", {}, "At least one runs"), kindsTable(S, found.kinds, share)),
        el("div", {}, el("h4", {}, "By name"), table(["name", "events", "total", "mean"],
          found.names.map(([code, count, ns]) => [name(code), T.count(count), T.time(ns), T.time(ns / count)]))),
        el("div", {}, el("h4", {}, "By lane"), table(["lane", "busy", "of the span"],
          found.lanes.slice(0, 12).map(([lane, ns]) => {
            const [rank, , track, depth] = S.about.lanes[lane];
            return [`${rank >= 0 ? `${rank}: ` : ""}${track}${depth ? ` ·${depth}` : ""}`, T.time(ns), share(ns)];
          })))));
  };

  T.KEYS = [
    ["W, S or + , −", "zoom in, out"], ["A, D or ←, →", "to the left, to the right"],
    ["↑, ↓ or wheel", "up, down"], ["Ctrl + wheel", "zoom where the pointer is"], ["drag", "move"],
    ["Shift + drag", "mark a span of time"], ["M", "mark the selected event's time"],
    ["F or double click", "bring what is selected into view"], ["0", "everything"],
    ["/", "search"], [". and ,", "next, previous of the same name"], ["L", "longest of the same name"],
    ["N", "write a note here"], ["T", "pin, move and filter tracks"], ["drag a track's name", "move the track"],
    ["[ and ]", "follow the arrow back, forth"], ["P", "critical path"], ["Esc", "let go"],
  ];

  T.showKeys = function (place) {
    const list = pairs(T.KEYS);
    list.className = "keys";
    place.replaceChildren(el("h3", {}, "Keys and mouse"), list);
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
