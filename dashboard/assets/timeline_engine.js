/* Answers the timeline's questions within the page: for a file that opens from disk. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const MOST = 9000;
  const LEAST = 2; // pixels

  /* Planes of bytes to numbers. */
  function column(bytes, at, count, planes) {
    const found = new Float64Array(count);
    let scale = 1;
    for (let p = 0; p < planes; p++, scale *= 256) {
      const from = at + p * count;
      for (let i = 0; i < count; i++) found[i] += bytes[from + i] * scale;
    }
    return found;
  }

  async function unzipped(text) {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /* Signed steps within each part, 0 for none, to places. */
  function placed(steps, parts) {
    const found = new Int32Array(steps.length).fill(-1);
    for (const [from, to] of parts) {
      let last = 0;
      for (let i = from; i < to; i++) {
        if (!steps[i]) continue;
        const zigzag = steps[i] - 1;
        last += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
        found[i] = last;
      }
    }
    return found;
  }

  T.embedded = async function (about, text) {
    const bytes = await unzipped(text);
    const columns = {};
    let at = 0;
    for (const [name, planes] of about.columns) {
      columns[name] = column(bytes, at, about.events, planes);
      at += planes * about.events;
    }
    return new Engine(about, columns);
  };

  class Engine {
    constructor(about, columns) {
      this.about = about;
      const count = about.events;
      this.start = new Float64Array(count);
      this.end = new Float64Array(count);
      this.name = Uint32Array.from(columns.name);
      this.lane = new Uint16Array(count);
      this.parts = about.parts.map(([lane, first], k) => ({
        lane, first, last: k + 1 < about.parts.length ? about.parts[k + 1][1] : count,
      }));
      for (const part of this.parts) {
        let t = about.low;
        for (let i = part.first; i < part.last; i++) {
          this.start[i] = t + columns.gap[i];
          t = this.end[i] = this.start[i] + columns.length[i];
          this.lane[i] = part.lane;
        }
      }
      const spans = this.parts.map((p) => [p.first, p.last]);
      this.cause = placed(columns.cause, spans);
      this.match = placed(columns.match, spans);
      this.made = about.lanes.map(T.isMade);
    }

    async ask(question, given) {
      return question === "about" ? this.about : this[question](given);
    }

    /* How long a span lasts. */
    lasted(i) { return T.lasted(this.about, this.start[i], this.end[i]); }

    /* First span of a part that ends after a time. */
    from(part, time) {
      let low = part.first;
      let high = part.last;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.end[middle] > time) high = middle;
        else low = middle + 1;
      }
      return low;
    }

    until(part, time) {
      let low = part.first;
      let high = part.last;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.start[middle] < time) low = middle + 1;
        else high = middle;
      }
      return low;
    }

    view({ start, end, width, lanes, text, path }) {
      const lit = this.lit(text, path);
      const chosen = numbers(lanes);
      const span = end - start;
      const pixel = span / width;
      const kinds = this.about.kinds.length;
      const shares = new Map();
      const litShares = new Map();
      let rows = [];
      const line = new Map(chosen.map((lane, k) => [lane, k]));
      const put = (into, at, kind, from, to) => {
        const key = at * kinds + kind;
        let share = into.get(key);
        if (!share) into.set(key, share = new Float32Array(width));
        this.spread(share, (from - start) / pixel, (to - start) / pixel, width);
      };
      const add = (i) => {
        const at = line.get(this.lane[i]);
        const kind = this.about.kind_of[this.name[i]];
        put(shares, at, kind, this.start[i], this.end[i]);
        if (lit && lit(i) && !this.made[this.lane[i]]) put(litShares, at, kind, this.start[i], this.end[i]);
      };
      for (const part of this.parts) {
        if (!line.has(part.lane)) continue;
        const a = this.from(part, start);
        const b = this.until(part, end);
        const summary = this.about.lanes[part.lane][1] === "busy";
        if (!summary && b - a <= width / 4) {
          for (let i = a; i < b; i++) rows.push(i);
          continue;
        }
        for (let i = a; i < b; i++) {
          if (!summary && this.end[i] - this.start[i] >= LEAST * pixel) { rows.push(i); continue; }
          add(i);
        }
      }
      const merged = rows.length > MOST;
      if (merged) {
        rows.sort((p, q) => this.end[q] - this.start[q] - this.end[p] + this.start[p]);
        rows.slice(MOST).forEach(add);
        rows = rows.slice(0, MOST);
      }
      const strips = chosen.map((lane, k) => (this.about.lanes[lane][1] === "busy" ? k : -1)).filter((k) => k >= 0);
      if (lit) {
        for (const k of strips) {
          this.busy(this.about.lanes[chosen[k]][0], start, end, lit, (kind, from, to) => put(litShares, k, kind, from, to));
        }
      }
      const stack = (from) => this.stack(from, strips, width, kinds);
      const folded = this.folded(litShares, width, chosen.length, kinds);
      return { ...this.folded(shares, width, chosen.length, kinds), stack: stack(shares),
        ...(lit ? { lit_density: folded.density, lit_dominant: folded.dominant, lit_stack: stack(litShares) } : {}),
        ...this.spans(rows, start, span, line), ...this.counters(start, end, width, chosen),
        head: { counters: chosen.map((lane, k) => (this.about.lanes[lane][1] === "counters" ? k : -1)).filter((k) => k >= 0), cells: width, lanes: chosen.length, count: rows.length, merged, strips,
          ...(lit ? { hits: this.hits(start, end, width, lit) } : {}) } };
    }

    /* The lowest and highest value of counters in each cell. */
    counters(start, end, width, chosen) {
      const own = chosen.map((lane) => (this.about.counters || []).find((c) => c.lane === lane)).filter((c) => c);
      const low = new Float32Array(own.length * width).fill(NaN);
      const high = new Float32Array(own.length * width).fill(NaN);
      const edge = (k) => Math.floor(start + ((end - start) * k) / width);
      own.forEach(({ points: [times, values] }, n) => {
        let next = 0; // the first point after the edge
        while (next < times.length && times[next] <= edge(0)) next++;
        for (let k = 0; k < width; k++) {
          const at = n * width + k;
          for (let i = Math.max(0, next - 1); i < times.length && (i < next || times[i] <= edge(k + 1)); i++) {
            next = Math.max(next, i + 1);
            const value = values[i];
            if (value === null) continue;
            if (!(low[at] <= value)) low[at] = value;
            if (!(high[at] >= value)) high[at] = value;
          }
        }
      });
      return { counter_low: low, counter_high: high };
    }

    /* Cells in which something lit lies, in whichever lane, as runs. */
    hits(start, end, width, lit) {
      const has = new Uint8Array(width);
      const cell = (end - start) / width;
      for (const part of this.parts) {
        if (this.made[part.lane]) continue;
        for (let i = this.from(part, start), b = this.until(part, end); i < b; i++) {
          if (!lit(i)) continue;
          const first = Math.min(width - 1, Math.max(0, Math.floor((this.start[i] - start) / cell)));
          const last = Math.min(width, Math.ceil((this.end[i] - start) / cell));
          has.fill(1, first, Math.max(first + 1, last));
        }
      }
      const runs = [];
      for (let x = 0; x < width; x++) {
        if (!has[x]) continue;
        const from = x;
        while (x < width && has[x]) x++;
        runs.push([from, x]);
      }
      return runs;
    }

    /* Whether a span is wanted: by its name, by the path; nothing where all are. */
    lit(text, path) {
      if (!text && !path) return null;
      const codes = text ? this.named(text) : null;
      if (path && !this.onPath) this.onPath = new Set(this.about.path ? this.about.path.id : []);
      return (i) => (!codes || codes.has(this.name[i])) && (!path || this.onPath.has(i));
    }

    /* What a rank's GPUs run of some spans: each kind while none before it runs. */
    busy(rank, start, end, lit, put) {
      const kinds = this.about.kinds;
      const pieces = [];
      for (const part of this.parts) {
        const lane = this.about.lanes[part.lane];
        if (lane[0] !== rank || lane[1] !== "streams") continue;
        for (let i = this.from(part, start), b = this.until(part, end); i < b; i++) {
          if (lit(i)) pieces.push([this.start[i], this.end[i], this.about.kind_of[this.name[i]]]);
        }
      }
      let covered = [];
      for (const kind of ["compute", "comm", "memory"].map((word) => kinds.indexOf(word))) {
        const own = joined(pieces.filter((p) => p[2] === kind));
        for (const [from, to] of without(own, covered)) put(kind, from, to);
        covered = joined([...covered, ...own]);
      }
    }

    stack(shares, strips, width, kinds) {
      const words = ["compute", "comm", "memory"].map((word) => this.about.kinds.indexOf(word));
      const stack = new Uint8Array(strips.length * words.length * width);
      strips.forEach((line, k) => words.forEach((kind, n) => {
        const share = shares.get(line * kinds + kind);
        if (!share) return;
        const at = (k * words.length + n) * width;
        for (let x = 0; x < width; x++) stack[at + x] = Math.round(Math.min(1, share[x]) * 255);
      }));
      return stack;
    }

    /* A span over the cells that it touches. */
    spread(share, from, to, width) {
      const first = Math.max(0, Math.floor(from));
      const last = Math.min(width - 1, Math.floor(to));
      for (let x = first; x <= last; x++) share[x] += Math.min(to, x + 1) - Math.max(from, x);
    }

    folded(shares, width, lanes, kinds) {
      const density = new Uint8Array(width * lanes);
      const dominant = new Uint8Array(width * lanes);
      const best = new Float32Array(width * lanes);
      const total = new Float32Array(width * lanes);
      for (const [key, share] of shares) {
        const at = Math.floor(key / kinds) * width;
        for (let x = 0; x < width; x++) {
          total[at + x] += share[x];
          if (share[x] > best[at + x]) { best[at + x] = share[x]; dominant[at + x] = key % kinds; }
        }
      }
      for (let i = 0; i < total.length; i++) density[i] = Math.ceil(Math.min(1, total[i]) * 255);
      return { density, dominant };
    }

    spans(rows, start, span, line) {
      const count = rows.length;
      const found = { x: new Float32Array(count), w: new Float32Array(count), id: new Uint32Array(count),
        name: new Uint32Array(count), lane: new Uint16Array(count) };
      rows.forEach((i, k) => {
        found.x[k] = (this.start[i] - start) / span;
        found.w[k] = (this.end[i] - this.start[i]) / span;
        found.id[k] = i;
        found.name[k] = this.name[i];
        found.lane[k] = line.get(this.lane[i]);
      });
      return found;
    }

    /** @param {{ id?: number | string, ref?: string }} which */
    event({ id, ref }) {
      const place = ref ? Number(String(ref).replace("span:", "")) : Number(id);
      if (!(place >= 0 && place < this.about.events)) throw new Error("there is no such event");
      const lane = this.about.lanes[this.lane[place]];
      const name = this.name[place];
      return { id: place, ref: `span:${place}`, name: this.about.names[name],
        kind: this.about.kinds[this.about.kind_of[name]], lane: this.lane[place], rank: lane[0], track: lane[2],
        start: this.start[place], end: this.end[place], facts: [], arrows: this.arrows(place), pages: [] };
    }

    arrow(kind, from, to) {
      const start = kind === "backward" ? this.end[from] : this.start[from];
      return { kind, from: [this.lane[from], start, from], to: [this.lane[to], this.start[to], to] };
    }

    arrows(place) {
      const kind = (to) => (this.about.lanes[this.lane[to]][1] === "streams" ? "launch" : "backward");
      const found = [];
      if (this.cause[place] >= 0) found.push(this.arrow(kind(place), this.cause[place], place));
      for (let i = 0; i < this.cause.length && found.length < 64; i++) {
        if (this.cause[i] === place) found.push(this.arrow(kind(i), place, i));
      }
      if (this.match[place] < 0) return found;
      const section = this.about.lanes[this.lane[place]][1];
      let last = place;
      const members = [];
      for (let i = 0; i < this.match.length; i++) {
        if (this.match[i] !== this.match[place] || this.about.lanes[this.lane[i]][1] !== section) continue;
        members.push(i);
        if (this.start[i] > this.start[last]) last = i;
      }
      return found.concat(members.filter((i) => i !== last).map((i) => this.arrow("collective", last, i)));
    }

    named(text) {
      const wanted = text.toLowerCase();
      return new Set(this.about.names.map((n, k) => [n.toLowerCase(), k]).filter(([n]) => n.includes(wanted)).map(([, k]) => k));
    }

    search({ text }) {
      const codes = this.named(text);
      const sums = new Map();
      let spans = 0;
      for (let i = 0; i < this.name.length; i++) {
        if (!codes.has(this.name[i]) || this.made[this.lane[i]]) continue;
        const sum = sums.get(this.name[i]) || [this.name[i], 0, 0];
        sum[1] += 1;
        sum[2] += this.lasted(i);
        sums.set(this.name[i], sum);
        spans += 1;
      }
      return { spans, names: codes.size, found: [...sums.values()].sort((a, b) => b[2] - a[2]).slice(0, 200) };
    }

    jump({ how, id, text }) {
      const at = Number(id);
      const codes = text ? this.named(text) : new Set([this.name[at]]);
      const rank = text ? null : this.about.lanes[this.lane[at]][0];
      const after = at >= 0 ? this.start[at] : -Infinity;
      const later = (i, j) => this.start[i] - this.start[j] || i - j;
      let best = -1;
      let wrap = -1;
      const sign = how === "previous" ? -1 : 1;
      for (let i = 0; i < this.name.length; i++) {
        if (!codes.has(this.name[i]) || this.made[this.lane[i]]) continue;
        if (rank !== null && this.about.lanes[this.lane[i]][0] !== rank) continue;
        if (how === "longest") {
          if (best < 0 || this.lasted(i) > this.lasted(best)) best = i;
          continue;
        }
        if (wrap < 0 || sign * later(i, wrap) < 0) wrap = i;
        const beyond = at < 0 ? sign * (this.start[i] - after) > 0 : sign * later(i, at) > 0;
        if (beyond && (best < 0 || sign * later(i, best) < 0)) best = i;
      }
      if (best < 0) best = wrap;
      if (best < 0) throw new Error("nothing of that name");
      return this.event({ id: best });
    }

    stats({ start, end, lanes }) {
      const chosen = lanes ? new Set(numbers(lanes)) : null;
      const names = new Map();
      const hasStreams = this.about.lanes.some((lane) => lane[1] === "streams");
      const twice = (part) => hasStreams && this.about.lanes[part.lane][1] === "groups"; // they are kernels too
      const byLane = new Map();
      const pieces = new Map();
      let spans = 0;
      for (const part of this.parts) {
        if (this.made[part.lane] || (chosen && !chosen.has(part.lane))) continue;
        for (let i = this.from(part, start), b = this.until(part, end); i < b; i++) {
          const from = T.timeAt(this.about, Math.max(this.start[i], start));
          const to = T.timeAt(this.about, Math.min(this.end[i], end));
          if (!twice(part)) {
            const name = names.get(this.name[i]) || [this.name[i], 0, 0];
            name[1] += 1;
            name[2] += to - from;
            names.set(this.name[i], name);
          }
          byLane.set(part.lane, (byLane.get(part.lane) || 0) + to - from);
          const rank = this.about.lanes[part.lane][0];
          const kind = this.about.kind_of[this.name[i]];
          if (!pieces.has(rank)) pieces.set(rank, new Map());
          const byKind = pieces.get(rank);
          if (!byKind.has(kind)) byKind.set(kind, []);
          byKind.get(kind).push([from, to]);
          spans += 1;
        }
      }
      const inOrder = (map) => [...map].sort(([a], [b]) => a - b);
      const kinds = inOrder(pieces).flatMap(([rank, byKind]) =>
        inOrder(byKind).map(([kind, own]) => [rank, this.about.kinds[kind], covered(own)]));
      return { start, end, spans, kinds, names: [...names.values()].sort((a, b) => b[2] - a[2]).slice(0, 200),
        lanes: [...byLane].sort((a, b) => b[1] - a[1]) };
    }

    path() {
      if (!this.about.path) throw new Error("the critical path was not kept in this file");
      return { ...this.about.path };
    }
  }

  /* Pieces of time as spans that do not touch, in order. */
  function joined(pieces) {
    const found = [];
    for (const [from, to] of [...pieces].sort((a, b) => a[0] - b[0])) {
      const last = found[found.length - 1];
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else found.push([from, to]);
    }
    return found;
  }

  /* What of these spans lies in none of those. */
  function without(these, those) {
    const found = [];
    let k = 0;
    for (const [start, end] of these) {
      let from = start;
      while (k < those.length && those[k][1] <= from) k++;
      for (let j = k; j < those.length && those[j][0] < end; j++) {
        if (those[j][0] > from) found.push([from, those[j][0]]);
        from = Math.max(from, those[j][1]);
      }
      if (from < end) found.push([from, end]);
    }
    return found;
  }

  function covered(pieces) {
    pieces.sort((a, b) => a[0] - b[0]);
    let total = 0;
    let upto = -Infinity;
    for (const [from, to] of pieces) {
      if (to <= upto) continue;
      total += to - Math.max(from, upto);
      upto = to;
    }
    return total;
  }

  function numbers(text) {
    return String(text).split(",").filter(Boolean).flatMap((piece) => {
      const [a, b] = piece.split("..").map(Number);
      return b === undefined ? [a] : Array.from({ length: b - a + 1 }, (_, k) => a + k);
    });
  }
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
