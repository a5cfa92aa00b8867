/* The timeline: a canvas that asks for the level of detail its pixels can show.
   `source.ask(question, given)` answers from a server, a notebook's kernel or the page itself;
   one view is asked for at a time, and what was last heard is drawn transformed meanwhile. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const MARGIN = 0.25; // of the view, fetched on both sides
  const SPARE = 8; // rows, above and below
  const EASE = 0.38;
  const MOST_SMALL = 64; // lines of the small picture of the whole

  T.mount = async function (place, source, options = {}) {
    const aligned = options.aligned !== false; // ranks whose clocks agree stand as recorded anyway
    const about = await source.ask("about", { aligned: aligned ? 1 : 0 });
    if (!about.events) {
      place.textContent = "Nothing here has a start and an end: no GPU work, operators or ranges were recorded. "
        + "`htk doctor` says what was, and how to record more.";
      return null;
    }
    const S = /** @type {htk.State} */ ({
      about, source, options, folded: T.folded(about), view: { start: about.low, end: about.high },
      goal: null, scroll: 0, shown: null, small: null, selected: null, hover: null, range: null, pointer: null,
      wanted: "", hits: new Set(), path: null, pinned: [], order: [], filterText: "", notes: [], aligned, drag: null, filter: options.filter || null,
    });
    const P = T.parts(place, about, options);
    P.align.setAttribute("aria-pressed", String(aligned));
    const C = new Control(S, P);
    C.start();
    return C.handle();
  };

  class Control {
    /** @param {htk.State} S  @param {htk.Parts} P */
    constructor(S, P) {
      this.S = S;
      this.P = P;
      this.frame = this.timer = this.turn = 0;
      this.busy = this.again = false;
      this.context = P.canvas.getContext("2d");
      this.smallContext = P.small.getContext("2d");
    }

    start() {
      const { S, P } = this;
      this.recolour();
      this.layout();
      T.listen(this);
      T.hint(S, P.panel);
      new ResizeObserver(() => { this.fit(); this.redraw(); this.refresh(); }).observe(P.scroller);
      this.fit();
      this.overview();
      const given = S.options.start;
      this.refresh();
    }

    handle() {
      const { S } = this;
      return {
        go: (a, b) => this.go(a, b, true), redraw: () => this.redraw(), recolour: () => this.recolour(),
        view: () => ({ ...(S.goal || S.view) }), count: () => (S.shown ? S.shown.head.count : -1),
        select: (id) => this.select({ id }), selected: () => S.selected, range: () => S.range,
        mark: (a, b) => this.mark(a, b), state: S, restore: (state) => this.restore(state), revisit: (state) => this.revisit(state), idle: () => !this.busy,
        arrange: () => this.arrange(), filterTracks: (text) => T.filterTracks(this, text),
        pin: (key) => T.pinTrack(this, key), search: (text) => this.search(text), jump: (how, text) => this.jump(how, text), rows: () => S.rows.list,
        focus: () => this.P.canvas.focus({ preventScroll: true }),
      };
    }

    recolour() {
      const { S, P } = this;
      S.colours = S.options.dark && S.options.dark() ? T.DARK : T.LIGHT;
      S.palette = T.palette(S.colours, S.about.kinds);
      for (const [name, value] of Object.entries(S.colours)) {
        if (typeof value === "string") P.place.style.setProperty(`--t-${name}`, value);
      }
      if (S.shown) T.pictures(S, S.shown);
      if (S.small) T.pictures(S, S.small);
      T.legend(S, P.legend);
      this.redraw();
    }

    layout() {
      const { S, P } = this;
      S.rows = T.rows(S.about, S.folded, { pinned: S.pinned, order: S.order, filter: S.filterText });
      // What is known of a selection is in sight below the picture.
      const share = S.selected || S.range ? 0.36 : 0.6;
      const most = S.options.height || Math.max(260, Math.round(window.innerHeight * share));
      P.scroller.style.height = `${Math.min(most, S.rows.height + T.AXIS + 6)}px`;
      P.spacer.style.height = `${Math.max(0, S.rows.height + T.AXIS + 6 - P.scroller.clientHeight)}px`;
    }

    /* After tracks were pinned, moved or filtered. */
    arrange() {
      this.layout();
      this.fit();
      this.redraw();
      this.refresh();
      this.remember();
    }

    fit() {
      const ratio = Math.min(window.devicePixelRatio || 1, 2);
      for (const canvas of [this.P.canvas, this.P.small]) {
        const width = Math.max(320, canvas.clientWidth);
        const height = Math.max(20, canvas.clientHeight);
        if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
        if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
        canvas.size = { width, height, ratio };
      }
    }

    redraw() { this.frame = this.frame || requestAnimationFrame(() => this.draw()); }

    draw() {
      const { S, P } = this;
      this.frame = 0;
      if (S.goal) this.ease();
      T.frame(S, this.context, P.canvas.size);
      T.overview(S, this.smallContext, P.small.size);
    }

    ease() {
      const { S } = this;
      const { goal, view } = S;
      const near = Math.abs(goal.start - view.start) + Math.abs(goal.end - view.end) < (goal.end - goal.start) * 0.002;
      if (near) {
        S.view = goal;
        S.goal = null;
        this.refresh();
        return;
      }
      S.view = { start: view.start + (goal.start - view.start) * EASE, end: view.end + (goal.end - view.end) * EASE };
      this.redraw();
    }

    /* Moves the view; at once, or as fast as eyes follow. */
    go(start, end, atOnce = false) {
      const { S } = this;
      const whole = S.about.high - S.about.low;
      const span = Math.min(whole, Math.max(50, end - start));
      const from = Math.max(S.about.low, Math.min(S.about.high - span, start));
      const goal = { start: from, end: from + span };
      if (atOnce) { S.view = goal; S.goal = null; } else S.goal = goal;
      this.redraw();
      this.refresh();
      this.remember();
    }

    zoom(factor, at = 0.5, atOnce = false) {
      const view = this.S.goal || this.S.view;
      const centre = view.start + at * (view.end - view.start);
      this.go(centre - (centre - view.start) * factor, centre + (view.end - centre) * factor, atOnce);
    }

    pan(by, atOnce = false) {
      const view = this.S.goal || this.S.view;
      const span = view.end - view.start;
      this.go(view.start + by * span, view.end + by * span, atOnce);
    }

    /* Lanes that can be seen, and some more. */
    lanes() {
      const { S, P } = this;
      const top = S.scroll - SPARE * T.LANE;
      const bottom = S.scroll + P.canvas.size.height + SPARE * T.LANE;
      const isSeen = (row) => row.pinned || (row.y + row.h > top && row.y < bottom);
      return S.rows.list.filter((row) => row.lane >= 0 && isSeen(row)).map((row) => row.lane).sort((a, b) => a - b);
    }

    stale(want, lanes) {
      const { shown } = this.S;
      if (!shown || shown.aligned !== this.S.aligned || shown.litKey !== this.litKey()) return true;
      const fine = (want.end - want.start) / (shown.end - shown.start);
      const has = new Set(shown.lanes);
      return want.start < shown.low || want.end > shown.high || Math.abs(fine * (1 + 2 * MARGIN) - 1) > 0.02
        || lanes.some((lane) => !has.has(lane));
    }

    /* What the picture is to light: matches of a search, the critical path, or both. */
    lit() {
      const { S } = this;
      return { ...(S.wanted ? { text: S.wanted } : {}), ...(S.path ? { path: S.path.step } : {}) };
    }

    litKey() { return JSON.stringify(this.lit()); }

    async refresh() {
      const { S, P } = this;
      if (!P.canvas.size) return;
      if (this.busy) { this.again = true; return; }
      this.busy = true;
      do {
        this.again = false;
        const want = { ...(S.goal || S.view) };
        const lanes = this.lanes();
        if (!this.stale(want, lanes) || !lanes.length) continue;
        const span = want.end - want.start;
        const start = want.start - MARGIN * span;
        const end = want.end + MARGIN * span;
        const { width, ratio } = P.canvas.size;
        const pixels = Math.round((width - T.GUTTER) * ratio * (1 + 2 * MARGIN));
        const { aligned } = S;
        const lit = this.lit();
        const litKey = this.litKey();
        try {
          const data = await S.source.ask("view",
            { start, end, width: pixels, lanes: T.ranges(lanes), aligned: aligned ? 1 : 0, ...lit });
          if (aligned !== S.aligned || litKey !== this.litKey()) { this.again = true; continue; }
          const low = start <= S.about.low ? -Infinity : start;
          const high = end >= S.about.high ? Infinity : end;
          S.shown = { ...data, start, end, low, high, lanes, aligned, litKey };
          T.pictures(S, S.shown);
          P.merged.hidden = !data.head.merged;
          this.fresh = performance.now();
          this.redraw();
        } catch (error) {
          this.again = false;
          T.trouble(P.panel, `The timeline got no answer: ${error.message}`);
        }
      } while (this.again);
      this.busy = false;
    }

    async overview() {
      const { S, P } = this;
      // A recording without GPU work, as a dump is: the first lane of each track.
      const strips = S.about.nodes.length ? S.about.nodes.map((node) => node.lane)
        : S.about.lanes.map((l, k) => (l[1] === "busy" ? k : -1)).filter((k) => k >= 0);
      const every = strips.length ? strips : [...T.tracks(S.about).values()].map((t) => t.lanes[0]).sort((a, b) => a - b);
      const apart = Math.max(1, every.length / MOST_SMALL);
      const lanes = every.filter((_, k) => Math.floor(k / apart) !== Math.floor((k - 1) / apart));
      if (!lanes.length) return;
      const { about } = S;
      const width = Math.max(200, P.small.size.width - T.GUTTER);
      const litKey = this.litKey();
      const small = await this.ask("view", { start: about.low, end: about.high, width, lanes: T.ranges(lanes), ...this.lit() });
      if (!small || about !== S.about || litKey !== this.litKey()) return;
      S.small = small;
      T.pictures(S, S.small);
      this.redraw();
    }

    /* The span under a point of the canvas. */
    at(x, y) {
      const { S } = this;
      const row = T.rowUnder(S, y);
      if (!row || row.lane < 0 || !S.shown || x < T.GUTTER || y < T.AXIS) return null;
      const { shown, view } = S;
      const perPixel = (view.end - view.start) / (this.P.canvas.size.width - T.GUTTER);
      const t = view.start + (x - T.GUTTER) * perPixel;
      const whole = shown.end - shown.start;
      let best = null;
      for (let i = 0; i < shown.head.count; i++) {
        if (shown.lanes[shown.lane[i]] !== row.lane) continue;
        const start = shown.start + shown.x[i] * whole;
        const end = start + shown.w[i] * whole;
        const off = Math.max(start - t, t - end, 0);
        if (off > 2 * perPixel || (best && best.off <= off)) continue;
        best = { off, id: shown.id[i], lane: row.lane, name: shown.name[i], start, end };
      }
      return best;
    }

    /* What a counter is under a point of the canvas. */
    counterAt(x, y) {
      const { S } = this;
      const row = T.rowUnder(S, y);
      if (!row || !row.counter || !S.shown || x < T.GUTTER) return null;
      const { head, lanes, start, end, counter_low: low, counter_high: high } = S.shown;
      const at = head.counters.findIndex((line) => lanes[line] === row.lane);
      const t = S.view.start + ((x - T.GUTTER) / (this.P.canvas.size.width - T.GUTTER)) * (S.view.end - S.view.start);
      const cell = Math.floor(((t - start) / (end - start)) * head.cells);
      if (at < 0 || cell < 0 || cell >= head.cells) return null;
      const place = at * head.cells + cell;
      return { counter: row.counter, rank: row.rank, time: t, low: low[place], high: high[place] };
    }

    async ask(question, given) {
      const { S, P } = this;
      try {
        return await S.source.ask(question, { ...given, aligned: S.aligned ? 1 : 0 });
      } catch (error) {
        T.trouble(P.panel, error.message);
        return null;
      }
    }

    /* An answer about what is selected; none where something else was chosen meanwhile. */
    async askOnce(question, given) {
      const turn = ++this.turn;
      const found = await this.ask(question, given);
      return turn === this.turn ? found : null;
    }

    /* Selects an event by its id, or by the name that holds in every view. */
    async select(given, { reveal = false } = {}) {
      const found = await this.askOnce("event", given);
      if (found) this.selectFound(found, reveal);
    }

    selectFound(found, reveal) {
      const { S, P } = this;
      S.selected = found;
      S.range = null;
      this.layout();
      this.fit();
      if (reveal) this.reveal(found);
      else this.scrollTo(found);
      T.showEvent(S, P.panel, {
        focus: () => this.focus(), jump: (how) => this.jump(how),
        select: (id) => this.select({ id }, { reveal: true }), note: () => T.noteHere(this),
      });
      this.redraw();
      this.remember();
      if (S.options.select) S.options.select(found);
    }

    /* Brings an event into view, and its row, which may be folded away. */
    reveal(found) {
      const { S, P } = this;
      const lane = S.about.lanes[found.lane];
      if (S.rows.at[found.lane] < 0) {
        if (S.filterText) T.filterTracks(this, "");
        T.unfold(S, lane[0]);
        if (lane[3]) S.folded.delete(`${lane[0]}|${lane[1]}|${lane[2]}`);
        this.layout();
      }
      this.scrollTo(found);
      const view = S.goal || S.view;
      const span = view.end - view.start;
      const length = found.end - found.start;
      if (found.start >= view.start && found.end <= view.end && length > span / 400) { this.refresh(); return; }
      const wide = length > span || length < span / 400 ? Math.max(length * 5, 200) : span;
      const middle = (found.start + found.end) / 2;
      this.go(middle - wide / 2, middle + wide / 2, true);
    }

    /* Scrolls to the row of an event, where it is out of sight. */
    scrollTo(found) {
      const { S, P } = this;
      const y = S.rows.at[found.lane];
      const room = P.scroller.clientHeight - T.AXIS;
      const isSeen = y < S.rows.pinned || (y >= S.scroll + S.rows.pinned && y <= S.scroll + room - 2 * T.LANE);
      if (!isSeen) P.scroller.scrollTop = Math.max(0, y - (room + S.rows.pinned) / 2);
    }

    /* Selects the first event in sight, from where keys go on. */
    begin() {
      const { S } = this;
      const { shown, view } = S;
      if (!shown) return;
      const whole = shown.end - shown.start;
      let best = null;
      for (let i = 0; i < shown.head.count; i++) {
        const start = shown.start + shown.x[i] * whole;
        const lane = shown.lanes[shown.lane[i]];
        const y = S.rows.at[lane];
        if (T.isMade(S.about.lanes[lane])) continue;
        if (y < 0 || start < view.start || start > view.end) continue;
        if (!best || y < best.y || (y === best.y && start < best.start)) best = { id: shown.id[i], y, start };
      }
      if (best) this.select({ id: best.id });
    }

    /* Selects what a selected event called first, or what called it: of its track, one row down or up. */
    enter(by) {
      const { S } = this;
      const { shown, selected } = S;
      if (!shown || !selected) { this.begin(); return; }
      const [rank, section, track, depth] = S.about.lanes[selected.lane];
      const whole = shown.end - shown.start;
      let best = null;
      for (let i = 0; i < shown.head.count; i++) {
        const lane = S.about.lanes[shown.lanes[shown.lane[i]]];
        if (lane[0] !== rank || lane[1] !== section || lane[2] !== track || lane[3] !== depth + by) continue;
        const start = shown.start + shown.x[i] * whole;
        const middle = start + (shown.w[i] * whole) / 2;
        const isInside = by > 0 ? middle >= selected.start && middle <= selected.end
          : start <= (selected.start + selected.end) / 2 && start + shown.w[i] * whole >= (selected.start + selected.end) / 2;
        if (isInside && (!best || start < best.start)) best = { id: shown.id[i], start };
      }
      if (best) this.select({ id: best.id });
    }

    focus() {
      const { S } = this;
      const target = S.range || S.selected;
      if (!target) return;
      const margin = (target.end - target.start) * 0.15 + 10;
      if (!S.range) this.reveal(target);
      this.go(target.start - margin, target.end + margin);
    }

    async jump(how, text = "") {
      const { S } = this;
      const id = S.selected ? S.selected.id : -1;
      if (id < 0 && !text) { this.begin(); return; }
      const found = await this.askOnce("jump", { how, id, text });
      if (found) this.selectFound(found, true);
    }

    follow(forth) {
      const { S } = this;
      const arrows = (S.selected && S.selected.arrows) || [];
      const id = S.selected ? S.selected.id : -1;
      const arrow = arrows.find((a) => (forth ? a.from : a.to)[2] === id);
      if (arrow) this.select({ id: (forth ? arrow.to : arrow.from)[2] }, { reveal: true });
    }

    /* Marks a span of time, on some lanes or on all rows, and says what runs in it. */
    async mark(start, end, lanes = null) {
      const { S, P } = this;
      S.range = { start: Math.round(Math.min(start, end)), end: Math.round(Math.max(start, end)), lanes };
      S.selected = null;
      this.layout();
      this.fit();
      this.redraw();
      this.remember();
      const { start: low, end: high } = S.range;
      const found = await this.askOnce("stats", { start: low, end: high, lanes: lanes ? T.ranges(lanes) : "" });
      if (!found || !S.range) return;
      const time = (place) => T.timeAt(S.about, place);
      const filter = S.options.narrow ? () => S.options.narrow(time(S.range.start), time(S.range.end)) : null;
      T.showStats(S, P.panel, found, { focus: () => this.focus(), clear: () => this.clear(), filter,
        note: () => T.noteHere(this) });
    }

    clear() {
      const { S, P } = this;
      if (!S.selected && !S.range && S.wanted) this.search(""); // the second Escape ends the search
      this.turn += 1;
      S.selected = S.range = null;
      this.layout();
      this.fit();
      T.hint(S, P.panel);
      this.redraw();
      this.refresh();
      this.remember();
    }

    async search(text) {
      const { S, P } = this;
      S.wanted = text.trim();
      if (P.search.value.trim() !== S.wanted) P.search.value = text;
      S.hits = new Set();
      const low = S.wanted.toLowerCase();
      if (low) S.about.names.forEach((name, k) => { if (name.toLowerCase().includes(low)) S.hits.add(k); });
      for (const part of [P.before, P.next, P.longest]) part.hidden = !S.wanted;
      P.found.textContent = "";
      this.redraw();
      this.refresh();
      this.overview();
      this.remember();
      if (!S.wanted) return;
      const asked = S.wanted;
      const found = await this.ask("search", { text: asked });
      if (!found || asked !== S.wanted) return;
      found.found.forEach(([code]) => S.hits.add(code));
      if (!S.selected && !S.range && found.spans) T.showFound(S, P.panel, found, (name) => this.jump("longest", name));
      P.found.textContent = found.spans
        ? `${T.count(found.spans)} events of ${T.count(found.names)} names` : "nothing of that name";
      this.redraw();
    }

    async align(on) {
      const { S, P } = this;
      P.align.disabled = true;
      const about = await this.ask("about", { aligned: on ? 1 : 0 });
      P.align.disabled = false;
      if (!about) return;
      const ref = S.selected && S.selected.ref;
      this.turn += 1;
      const notes = this.timed(S.notes, T.timeAt);
      Object.assign(S, { about, aligned: on, path: null, range: null, selected: null });
      S.notes = this.timed(notes, T.placeOf);
      P.align.setAttribute("aria-pressed", String(on));
      P.path.setAttribute("aria-pressed", "false");
      this.layout();
      this.overview();
      this.refresh();
      if (ref) this.select({ ref });
      else T.hint(S, P.panel);
      this.remember();
    }

    async criticalPath() {
      const { S, P } = this;
      if (S.path) {
        S.path = null;
      } else {
        P.path.disabled = true;
        const centre = (S.view.start + S.view.end) / 2;
        const inside = S.about.steps.find((s) => s[0] === 1 && s[3] <= centre && centre < s[4]);
        const zoomed = S.view.end - S.view.start < (S.about.high - S.about.low) / 2;
        const { about } = S;
        const step = zoomed && inside ? inside[2] : "all";
        const found = await this.ask("path", step === "all" ? {} : { step });
        P.path.disabled = false;
        if (!found || about !== S.about) return;
        found.ids = new Set(found.id);
        S.path = { ...found, step };
        const low = Math.min(...found.start);
        const high = Math.max(...found.end);
        if (low > S.view.end || high < S.view.start) this.go(low, high);
        this.showPath(found);
        this.sayPath(found);
      }
      P.path.setAttribute("aria-pressed", String(!!S.path));
      this.redraw();
      this.refresh();
      this.overview();
    }

    /* Unfolds the lanes that the path runs through, and scrolls to where it spends most. */
    showPath(found) {
      const { S, P } = this;
      const spent = new Map();
      found.lane.forEach((lane, i) => {
        if (lane >= 0) spent.set(lane, (spent.get(lane) || 0) + Math.max(0, found.end[i] - found.start[i]));
      });
      for (const lane of spent.keys()) {
        const [rank, section, track] = S.about.lanes[lane];
        T.unfold(S, rank);
        S.folded.delete(`${rank}|${section}|${track}`);
      }
      this.layout();
      const [most] = [...spent].sort((a, b) => b[1] - a[1])[0] || [-1];
      const y = most >= 0 ? S.rows.at[most] : 0;
      const room = P.scroller.clientHeight - T.AXIS;
      if (y >= S.rows.pinned && (y < S.scroll + S.rows.pinned || y > S.scroll + room - T.LANE)) P.scroller.scrollTop = Math.max(0, y - room / 2);
      this.refresh();
    }

    sayPath(found) {
      const total = new Map(found.lead[1] ? [found.lead] : []);
      found.start.forEach((start, i) => {
        const word = found.kinds[found.kind[i]];
        total.set(word, (total.get(word) || 0) + Math.max(0, T.lasted(this.S.about, start, found.end[i])));
      });
      const rows = [...total].sort((a, b) => b[1] - a[1]).map(([word, ns]) => `${word} ${T.time(ns, 3)}`);
      const step = found.of_step === null || found.of_step === undefined ? "" : ` of step ${found.of_step}`;
      const verdict = found.verdict && !found.verdict.startsWith("trusted") ? ` ${found.verdict}.` : "";
      T.trouble(this.P.panel, `Critical path${step}, ${T.time(found.total)}: ${rows.join(" · ")}.${verdict}`);
    }

    fold(row) {
      const { S } = this;
      if (!row || !row.folds) return;
      if (S.folded.has(row.key)) S.folded.delete(row.key);
      else S.folded.add(row.key);
      this.layout();
      this.redraw();
      this.refresh();
    }

    remember() {
      clearTimeout(this.timer);
      if (!this.S.options.remember) return;
      this.timer = setTimeout(() => {
        const { S } = this;
        const view = S.goal || S.view;
        const whole = view.start <= S.about.low && view.end >= S.about.high;
        // An address holds times: it stays right where the axis is cut otherwise.
        const times = (span) => [span.start, span.end].map((place) => Math.round(T.timeAt(S.about, place)));
        const at = whole ? "" : times(view).join("..");
        const range = S.range ? times(S.range).join("..") : "";
        const event = (S.selected && S.selected.ref) || "";
        S.options.remember({ at, event, range, aligned: S.aligned ? "" : "0", find: S.wanted, filter: S.filterText,
          pins: T.joined(S.pinned), order: T.joined(S.order), notes: T.notesText(this.timed(S.notes, T.timeAt)) });
      }, 250);
    }

    /* Notes with their times on the axis, or from there. */
    timed(notes, moved) {
      const { about } = this.S;
      return notes.map((note) => ({ ...note, start: Math.round(moved(about, note.start)), end: Math.round(moved(about, note.end)) }));
    }

    /* Shows what an address says and nothing else, as when one goes back. */
    async revisit(state) {
      const { S } = this;
      this.turn += 1;
      S.selected = S.range = null;
      this.layout();
      this.fit();
      T.hint(S, this.P.panel);
      if (!state.find && S.wanted) this.search("");
      if (!state.at) this.go(S.about.low, S.about.high, true);
      await this.restore(state);
    }

    async restore({ at, event, range, aligned, find, filter, pins, order, notes }) {
      const place = (time) => T.placeOf(this.S.about, Number(time));
      const pair = (text) => (/^-?\d+\.\.-?\d+$/.test(text || "") ? text.split("..").map(place) : null);
      if (aligned === "0" && this.S.about.can_align) await this.align(false);
      Object.assign(this.S, { pinned: T.split(pins), order: T.split(order) });
      T.setNotes(this, this.timed(T.notesOf(notes), T.placeOf));
      T.filterTracks(this, filter || "");
      if (find) this.search(find);
      const view = pair(at);
      if (view) this.go(view[0], view[1], true);
      if (event) await this.select({ ref: event }, { reveal: true });
      if (event && view) this.go(view[0], view[1], true);
      const marked = pair(range);
      if (marked) await this.mark(marked[0], marked[1]);
    }
  }
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
