/* Under the picture: everything known of an event, or what runs in a marked span of time. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const el = T.element;
  const ARROWS = { launch: ["launched by", "launched"], backward: ["forward", "backward"] };
  const OF_GPU = ["compute", "comm", "memory", "pending"];

  const MOST_LANES = 200;

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
    const linked = connections(S, found, act);
    place.replaceChildren(
      el("h3", {}, swatch(S, found.kind), el("span", { class: "name" }, found.name)),
      tools,
      el("div", { class: "columns" },
        pairs(facts.slice(0, half)),
        pairs(facts.slice(half)),
        linked.childElementCount ? el("div", {}, el("h4", {}, "Connected"), linked) : null));
  };

  /* What led to an event and what it led to. Of a collective: one line to the rank that was waited
     for, and all that waited, the longest first. */
  function connections(S, found, act) {
    const list = el("div", { class: "linked" });
    const where = (lane) => `${lane[0] >= 0 ? `rank ${lane[0]}, ` : ""}${lane[2]}`;
    const line = (text, id) => button(text, "go there", () => act.select(id));
    const gap = (arrow) => T.lasted(S.about, arrow.from[1], arrow.to[1]);
    const [across, direct] = [[], []];
    for (const arrow of found.arrows || []) (arrow.kind === "collective" ? across : direct).push(arrow);
    for (const arrow of direct) {
      const out = arrow.from[2] === found.id;
      const other = out ? arrow.to : arrow.from;
      list.append(line(`${ARROWS[arrow.kind][out ? 1 : 0]}: ${where(S.about.lanes[other[0]])}, `
        + `${out ? "+" : "−"}${T.time(Math.abs(gap(arrow)), 3)}`, other[2]));
    }
    const own = across.find((arrow) => arrow.to[2] === found.id);
    if (own) {
      list.append(line(`the rank that began last: ${where(S.about.lanes[own.from[0]])}, ${T.time(Math.abs(gap(own)), 3)} later`,
        own.from[2]));
    }
    const others = across.filter((arrow) => arrow !== own).sort((a, b) => gap(a) - gap(b));
    if (!others.length) return list;
    const waiting = others.map((arrow) =>
      line(`${where(S.about.lanes[arrow.to[0]])}: waited ${T.time(Math.max(0, -gap(arrow)), 3)}`, arrow.to[2]));
    const said = own ? `${T.count(others.length)} others waited for it` : `${T.count(others.length)} waited for this one`;
    list.append(el("details", own ? {} : { open: "" }, el("summary", {}, said), el("div", { class: "waiting" }, ...waiting)));
    return list;
  }

  function copy(found, basics) {
    const lines = [["name", found.name], ...basics, ...(found.facts || [])];
    navigator.clipboard.writeText(lines.map(([k, v]) => `${k}\t${v}`).join("\n"));
  }

  /* A table that its headings sort. A cell is [what is shown, by what it sorts]. */
  function table(heads, rows) {
    const body = el("tbody", {});
    let [by, down] = [-1, true];
    const fill = () => {
      const value = (row) => row[by][1];
      const inOrder = by < 0 ? rows : [...rows].sort((a, b) => (value(a) > value(b) ? 1 : value(a) < value(b) ? -1 : 0) * (down ? -1 : 1));
      body.replaceChildren(...inOrder.map((row) => el("tr", {}, ...row.map(([shown], k) =>
        el("td", { class: k ? "number" : "" }, ...[].concat(shown))))));
    };
    const sort = (k) => {
      [by, down] = [k, by === k ? !down : true];
      marks.forEach((mark, j) => mark.setAttribute("aria-sort", j !== by ? "none" : down ? "descending" : "ascending"));
      fill();
    };
    const marks = heads.map((h, k) => el("th", { scope: "col", class: k ? "number" : "", "aria-sort": "none" },
      el("button", { type: "button", class: "sort", title: "sort by this", onclick: () => sort(k) }, ...[].concat(h))));
    fill();
    return el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, ...marks)), body));
  }

  /* A row for each rank, a column for each kind; of one rank, a row for each kind. */
  function kindsTable(S, cells, share) {
    const ranks = [...new Set(cells.map(([rank]) => rank))];
    const kinds = S.about.kinds.filter((kind) => cells.some((cell) => cell[1] === kind));
    const named = (kind) => [swatch(S, kind), T.WORDS[kind]];
    if (ranks.length < 2) {
      return table(["kind", "time", "of the span"],
        cells.map(([, kind, ns]) => [[named(kind), T.WORDS[kind]], [T.time(ns), ns], [share(ns), ns]]));
    }
    const of = new Map(cells.map(([rank, kind, ns]) => [`${rank} ${kind}`, ns]));
    const line = (rank) => kinds.map((kind) => {
      const ns = of.get(`${rank} ${kind}`);
      return ns === undefined ? ["–", -1] : [el("span", { title: share(ns) }, T.time(ns, 3)), ns];
    });
    return table(["rank", ...kinds.map(named)], ranks.map((rank) => [[rank < 0 ? "unknown" : String(rank), rank], ...line(rank)]));
  }

  /* Names with how often and how long, as text that tables read. */
  function download(S, found) {
    const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
    const lines = found.names.map(([code, count, ns]) =>
      [quoted(S.about.names[code]), S.about.kinds[S.about.kind_of[code]], count, ns].join(","));
    const text = ["name,kind,events,total_ns", ...lines].join("\n");
    const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: "marked_time.csv" });
    link.click();
    URL.revokeObjectURL(link.href);
  }

  const nameCell = (S, code) => {
    const text = S.about.names[code];
    return [el("span", { class: "named", title: text }, swatch(S, S.about.kinds[S.about.kind_of[code]]), T.bare(text)), text];
  };

  T.showStats = function (S, place, found, act) {
    const whole = Math.max(1, T.lasted(S.about, found.start, found.end));
    const share = (ns) => `${((100 * ns) / whole).toFixed(1)} %`;
    const onGpu = ([code]) => OF_GPU.includes(S.about.kinds[S.about.kind_of[code]]);
    const byName = (title, names) => (names.length
      ? el("div", {}, el("h4", {}, title), table(["name", "events", "total", "mean"], names.map(([code, count, ns]) =>
        [nameCell(S, code), [T.count(count), count], [T.time(ns), ns], [T.time(ns / count), ns / count]])))
      : null);
    place.replaceChildren(
      el("h3", {}, el("span", { class: "name" },
        `${T.time(whole)} marked, from ${T.moment(T.timeAt(S.about, found.start), Math.max(1, whole / 1000))}; ${T.count(found.spans)} events`)),
      el("div", { class: "tools" },
        button("Focus", "bring it into view (F)", act.focus),
        act.filter ? button("Look at this time alone, on every page", "sets the filters from and to", act.filter) : null,
        button("Note", "write a note here; it travels in the link (N)", act.note),
        button("CSV", "the names with exact times", () => download(S, found)),
        button("Clear", "Escape", act.clear)),
      el("div", { class: "columns" },
        byName("On the GPUs, by name", found.names.filter(onGpu)),
        el("div", {}, el("h4", {}, "At least one runs"), kindsTable(S, found.kinds, share)),
        byName("Ranges and calls of the host, by name", found.names.filter((name) => !onGpu(name))),
        el("div", {}, el("h4", {}, "By lane"), table(["lane", "busy", "of the span"],
          found.lanes.slice(0, MOST_LANES).map(([lane, ns]) => {
            const [rank, , track, depth] = S.about.lanes[lane];
            const text = `${rank >= 0 ? `${rank}: ` : ""}${track}${depth ? ` ·${depth}` : ""}`;
            return [[text, text], [T.time(ns), ns], [share(ns), ns]];
          })))));
  };

  /* The names that a search found, the longest in total first; a click goes to its longest event. */
  T.showFound = function (S, place, found, act) {
    place.replaceChildren(
      el("h3", {}, el("span", { class: "name" }, `${T.count(found.spans)} events of ${T.count(found.names)} names`)),
      table(["name", "events", "total"], found.found.map(([code, count, ns]) => {
        const [shown, text] = nameCell(S, code);
        return [[el("button", { type: "button", class: "found-name", title: "its longest", onclick: () => act(text) }, shown), text],
          [T.count(count), count], [T.time(ns), ns]];
      })));
  };

  T.KEYS = [
    ["W, S or + , −", "zoom in, out"], ["A, D or ←, →", "to the left, to the right"],
    ["↑, ↓ or wheel", "up, down"], ["Ctrl + wheel", "zoom where the pointer is"], ["drag", "move"],
    ["Shift + drag", "mark a span of time"], ["M", "mark the selected event's time"],
    ["F or double click", "bring what is selected into view"], ["0", "everything"],
    ["/", "search"], [". and ,", "next, previous of the same name; . begins"], ["L", "longest of the same name"],
    ["Enter, Backspace", "into what it called, out to what called it"],
    ["N", "write a note here"], ["T", "pin, move and filter tracks"], ["drag a track's name", "move the track"],
    ["[ and ]", "follow the arrow back, forth"], ["P", "critical path"], ["Esc", "let go"],
  ];

  T.showKeys = function (place) {
    const list = pairs(T.KEYS);
    list.className = "keys";
    place.replaceChildren(el("h3", {}, "Keys and mouse"), list);
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
