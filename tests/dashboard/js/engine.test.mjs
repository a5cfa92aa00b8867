/* The timeline's engine in the page, against answers worked out span by span. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import vm from "node:vm";
import { gzipSync } from "node:zlib";

const ASSETS = new URL("../../../dashboard/assets/", import.meta.url);
for (const name of ["timeline_base.js", "timeline_cuts.js", "timeline_rows.js", "timeline_notes.js", "timeline_engine.js"]) {
  vm.runInThisContext(readFileSync(new URL(name, ASSETS), "utf8"), { filename: name });
}
const T = globalThis.htkTimeline;

/* A generator of numbers below `most`, the same for the same seed. */
function numbers(seed) {
  let state = seed;
  return (most) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 9) % most; // the low bits repeat soon
  };
}

/* Columns as planes of bytes, lowest first, zipped and as text: as the page holds them. */
function packed(columns, planes) {
  const bytes = [];
  for (const [name, count] of planes) {
    for (let p = 0; p < count; p++) for (const value of columns[name]) bytes.push(Math.floor(value / 256 ** p) % 256);
  }
  return gzipSync(Uint8Array.from(bytes)).toString("base64");
}

const PLANES = [["gap", 2], ["length", 2], ["name", 1], ["cause", 2], ["match", 2]];
const LANES = [[0, "busy", "busy", 0], [0, "streams", "stream 7", 0], [0, "threads", "thread 1", 0],
  [3, "busy", "busy", 0], [3, "streams", "stream 7", 0], [3, "groups", "dp", 0]];

/* Spans one after another in each lane, some beside none; `low` is not 0. */
function recording(seed) {
  const next = numbers(seed);
  const low = 5000;
  const columns = { gap: [], length: [], name: [], cause: [], match: [] };
  const parts = [];
  const spans = [];
  LANES.forEach((_, lane) => {
    parts.push([lane, spans.length]);
    let t = low;
    const count = lane === 2 ? 0 : 20 + next(30);
    for (let k = 0; k < count; k++) {
      const gap = next(4) ? next(300) : 0;
      const length = 1 + next(next(5) ? 90 : 2000);
      const name = next(6);
      columns.gap.push(gap);
      columns.length.push(length);
      columns.name.push(name);
      columns.cause.push(0);
      columns.match.push(0);
      spans.push({ lane, start: t + gap, end: t + gap + length, name });
      t += gap + length;
    }
  });
  const about = { events: spans.length, columns: PLANES, parts, low, lanes: LANES,
    names: ["gemm_big", "gemm_small", "all_reduce", "Memcpy", "norm", "GEMM"],
    kinds: ["compute", "comm", "memory"], kind_of: [0, 0, 1, 2, 0, 0], ranks: [], nodes: [], steps: [] };
  return { about, spans, text: packed(columns, PLANES) };
}

const made = (span) => LANES[span.lane][1] === "busy";

async function engines() {
  return Promise.all([1, 2, 3, 4].map(async (seed) => {
    const { about, spans, text } = recording(seed);
    return { engine: await T.embedded(about, text), spans, about };
  }));
}

test("spans come out of the page as they went in", async () => {
  for (const { engine, spans } of await engines()) {
    spans.forEach((span, i) => {
      const event = engine.event({ id: i });
      assert.deepEqual([event.start, event.end, event.lane], [span.start, span.end, span.lane]);
    });
    assert.throws(() => engine.event({ id: spans.length }), /no such event/);
  }
});

test("search counts the spans of a name, whatever its case, without drawn summaries", async () => {
  for (const { engine, spans, about } of await engines()) {
    const answer = engine.search({ text: "gemm" });
    const hits = spans.filter((s) => !made(s) && about.names[s.name].toLowerCase().includes("gemm"));
    assert.equal(answer.spans, hits.length);
    assert.equal(answer.found.reduce((sum, row) => sum + row[2], 0), hits.reduce((sum, s) => sum + s.end - s.start, 0));
    assert.deepEqual(answer.found.map((row) => row[2]), answer.found.map((row) => row[2]).sort((a, b) => b - a));
  }
});

test("the statistics of a window are those of its spans, cut at its edges", async () => {
  for (const { engine, spans, about } of await engines()) {
    const [start, end] = [5300, 7800];
    const inside = spans.filter((s) => !made(s) && s.start < end && s.end > start);
    const answer = engine.stats({ start, end });
    assert.equal(answer.spans, inside.length);
    for (const [name, count, total] of answer.names) {
      const own = inside.filter((s) => s.name === name && LANES[s.lane][1] !== "groups"); // kernels too
      assert.equal(count, own.length);
      assert.equal(total, own.reduce((sum, s) => sum + Math.min(s.end, end) - Math.max(s.start, start), 0));
    }
    for (const [rank, kind, covered] of answer.kinds) {
      let union = 0;
      for (let t = start; t < end; t++) {
        const at = inside.some((s) => LANES[s.lane][0] === rank && about.kinds[about.kind_of[s.name]] === kind && s.start <= t && t < s.end);
        if (at) union += 1;
      }
      assert.equal(covered, union, `${kind} of rank ${rank}`);
    }
  }
});

test("the kinds of a rank are its own, however many there are and however high the rank", async () => {
  const { about, text } = recording(1);
  const kinds = Array.from({ length: 600 }, (_, k) => `kind ${k}`);
  const kindOf = [0, 256, 257, 513, 1, 0]; // 256 of one rank is not 0 of the next
  const ranks = [(1 << 20) - 1, 1 << 20];
  const lanes = LANES.map(([rank, ...rest]) => [ranks[rank ? 1 : 0], ...rest]);
  const engine = await T.embedded({ ...about, kinds, kind_of: kindOf, lanes }, text);
  const { spans } = recording(1);
  const expected = new Map();
  for (const s of spans.filter((span) => !made(span))) {
    const key = `${lanes[s.lane][0]}, kind ${kindOf[s.name]}`;
    if (!expected.has(key)) expected.set(key, new Set());
    for (let t = s.start; t < s.end; t++) expected.get(key).add(t);
  }
  const answer = engine.stats({ start: 0, end: 1e6 });
  assert.deepEqual(new Map(answer.kinds.map(([rank, kind, time]) => [`${rank}, ${kind}`, time])),
    new Map([...expected].map(([key, moments]) => [key, moments.size])));
  const places = answer.kinds.map(([rank, kind]) => [rank, kinds.indexOf(kind)]);
  assert.deepEqual(places, [...places].sort((a, b) => a[0] - b[0] || a[1] - b[1]));
});

test("next, previous and longest go where a reader would", async () => {
  for (const { engine, spans, about } of await engines()) {
    const order = spans.map((s, i) => ({ ...s, i })).filter((s) => !made(s) && about.names[s.name].includes("gemm_big"))
      .sort((a, b) => a.start - b.start || a.i - b.i);
    const longest = Math.max(...order.map((s) => s.end - s.start));
    const found = engine.jump({ how: "longest", text: "gemm_big" });
    assert.equal(found.end - found.start, longest);
    order.forEach((span, k) => {
      const next = engine.jump({ how: "next", id: span.i, text: "gemm_big" });
      assert.equal(next.id, order[(k + 1) % order.length].i);
      const previous = engine.jump({ how: "previous", id: span.i, text: "gemm_big" });
      assert.equal(previous.id, order[(k + order.length - 1) % order.length].i);
    });
    assert.throws(() => engine.jump({ how: "next", id: 0, text: "no such kernel" }), /nothing of that name/);
  }
});

test("a view holds each long span, and in its cells the time of the short ones", async () => {
  for (const { engine, spans } of await engines()) {
    const [start, end, width] = [5000, 9000, 100];
    const lanes = [1, 4];
    const view = engine.view({ start, end, width, lanes: "1,4" });
    const drawn = new Set(view.id);
    const pixel = (end - start) / width;
    lanes.forEach((lane, line) => {
      const own = spans.map((s, i) => ({ ...s, i })).filter((s) => s.lane === lane && s.start < end && s.end > start);
      own.filter((s) => s.end - s.start >= 2 * pixel).forEach((s) => assert.ok(drawn.has(s.i)));
      for (let x = 0; x < width; x++) {
        const [from, to] = [start + x * pixel, start + (x + 1) * pixel];
        const hidden = own.filter((s) => !drawn.has(s.i))
          .reduce((sum, s) => sum + Math.max(0, Math.min(s.end, to) - Math.max(s.start, from)), 0);
        const density = view.density[line * width + x] / 255;
        assert.ok(Math.abs(density - Math.min(1, hidden / pixel)) < 0.01, `cell ${x} of lane ${lane}`);
      }
    });
  }
});

test("times, ranges and names as people read them", () => {
  assert.equal(T.time(0), "0 ns");
  assert.equal(T.time(1500), "1.500 µs");
  assert.equal(T.time(-2e6, 2), "-2.0 ms");
  assert.equal(T.moment(1234567, 1000), "1.235 ms");
  assert.equal(T.ranges([0, 1, 2, 7, 9, 10]), "0..2,7,9..10");
  assert.equal(T.short("abcdefghij", 5), "abcd…");
  assert.equal(T.short("a".repeat(30) + "END", 20).length, 20);
  assert.ok(T.short("a".repeat(30) + "END", 20).endsWith("END"));
});

test("rows: a folded rank keeps its head, and each row is found by its height", () => {
  const about = { lanes: LANES, ranks: [[0, "NVIDIA H100"], [3, null]], nodes: [] };
  const all = T.rows(about, new Set());
  const folded = T.rows(about, new Set([T.rankKey(0)]));
  assert.equal(all.list.filter((row) => row.head).length, 2);
  assert.deepEqual(folded.list.filter((row) => row.rank === 0).map((row) => row.head), [true]);
  assert.ok(folded.height < all.height);
  for (const row of all.list) assert.equal(T.rowAt(all, row.y + row.h / 2), row);
  assert.equal(T.rowAt(all, all.height + 5), null);
});

test("hits on the axis are the cells that a match touches, in whichever lane", async () => {
  for (const { engine, spans, about } of await engines()) {
    const [start, width, pixel] = [5100, 50, 60];
    const { head } = await engine.ask("view", { start, end: start + width * pixel, width, lanes: "0", text: "GEMM_b" });
    const lit = new Set(head.hits.flatMap(([a, b]) => Array.from({ length: b - a }, (_, k) => a + k)));
    for (let x = 0; x < width; x++) {
      const [from, to] = [start + x * pixel, start + (x + 1) * pixel];
      const own = spans.some((s) => !made(s) && about.names[s.name] === "gemm_big" && s.start < to && s.end > from);
      assert.equal(lit.has(x), own, `cell ${x}`);
    }
  }
});

test("pinned tracks come first, a filter leaves what it names, an order holds within its rank", () => {
  const about = { lanes: LANES, ranks: [], nodes: [] };
  const pinned = T.rows(about, new Set(), { pinned: ["3|groups|dp", "0|streams|stream 7", "no such track"] });
  assert.deepEqual(pinned.list.filter((row) => row.pinned).map((row) => row.label), ["rank 3 · dp", "rank 0 · stream 7"]);
  assert.equal(pinned.pinned, 2 * T.LANE);
  assert.equal(pinned.list.length, LANES.length, "each lane once");
  const filtered = T.rows(about, new Set([T.rankKey(3)]), { filter: "stream RANK 3" });
  assert.deepEqual(filtered.list.map((row) => row.key), ["rank 3", "3|streams|stream 7"]);
  const moved = T.rows(about, new Set(), { order: ["3|groups|dp", "3|streams|stream 7"] });
  assert.deepEqual(moved.list.filter((row) => !row.head).map((row) => row.key),
    ["0|streams|stream 7", "0|threads|thread 1", "3|groups|dp", "3|streams|stream 7"]);
});

test("notes and tracks go into a link and come out as they were", () => {
  const notes = [{ start: -5, end: 70, text: "a, b %2C\n..9" }, { start: 3, end: 3, text: "\u00fc" }];
  assert.deepEqual(T.notesOf(T.notesText(notes)), notes);
  assert.deepEqual(T.notesOf("9..1 backwards,none,%E0%A4%A"), []);
  assert.deepEqual(T.split(T.joined(["0|a,b|c%"])), ["0|a,b|c%"]);
});
