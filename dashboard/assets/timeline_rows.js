/* Which lanes are rows of the picture, and where: ranks and tracks can be folded. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const DEEP = new Set(["gpu ranges", "python", "profiler"]);

  const keyOf = (lane) => `${lane[0]}|${lane[1]}|${lane[2]}`;
  T.rankKey = (rank) => `rank ${rank}`;

  /* What is folded at first: the more ranks, the more. */
  T.folded = function (about) {
    const ranks = [...new Set(about.lanes.map((l) => l[0]))];
    const folded = new Set();
    about.lanes.forEach((lane) => {
      const place = ranks.indexOf(lane[0]);
      if (DEEP.has(lane[1]) || lane[2].startsWith("ranges, thread")) folded.add(keyOf(lane));
      if (ranks.length > 2 && ["threads", "ranges"].includes(lane[1])) folded.add(keyOf(lane));
      if (ranks.length > 8 && place >= 4) folded.add(T.rankKey(lane[0]));
    });
    return folded;
  };

  function title(about, rank) {
    const facts = about.ranks.find((r) => r[0] === rank);
    const device = facts && facts[1] ? ` · ${facts[1].replace(/^NVIDIA |^AMD /, "")}` : "";
    return rank < 0 ? `recording${device}` : `rank ${rank}${device}`;
  }

  /* Rows from top to bottom; a rank's first row stands for the rank. */
  T.rows = function (about, folded) {
    const count = new Map();
    about.lanes.forEach((lane) => count.set(keyOf(lane), (count.get(keyOf(lane)) || 0) + 1));
    const rows = [];
    const blocks = [];
    const at = new Float32Array(about.lanes.length).fill(-1);
    let y = 0;
    let rank = null;
    about.lanes.forEach((lane, number) => {
      const [owner, section, track, depth] = lane;
      const key = keyOf(lane);
      if (owner !== rank) {
        rank = owner;
        const busy = section === "busy";
        rows.push({ y, h: T.HEAD, rank: owner, head: true, lane: busy ? number : -1, key: T.rankKey(owner),
          label: title(about, owner), folds: true, open: !folded.has(T.rankKey(owner)) });
        if (busy) at[number] = y;
        y += T.HEAD;
        if (busy) return;
      }
      if (folded.has(T.rankKey(owner)) || (depth && folded.has(key))) return;
      const folds = !depth && count.get(key) > 1;
      rows.push({ y, h: T.LANE, rank: owner, lane: number, key, label: depth ? "" : track, folds,
        open: !folded.has(key), section, depth });
      at[number] = y;
      const gpu = ["streams", "idle", "groups", "gpu ranges"].includes(section);
      const block = blocks[blocks.length - 1];
      if (block && block.rank === owner && block.gpu === gpu && block.end === y) block.end = y + T.LANE;
      else blocks.push({ rank: owner, gpu, start: y, end: y + T.LANE });
      y += T.LANE;
    });
    return { list: rows, blocks, at, height: y };
  };

  /* Times within the recording at which a rank was not recorded. */
  T.gaps = function (about, rank) {
    const recorded = (about.recorded || []).filter((r) => r[0] === rank).sort((a, b) => a[1] - b[1]);
    const found = [];
    if (!recorded.length) return found;
    let upto = about.low;
    const least = (about.high - about.low) / 1000; // files begin and end a little apart
    for (const [, start, end] of recorded) {
      if (start - upto > least) found.push([upto, start]);
      upto = Math.max(upto, end);
    }
    if (about.high - upto > least) found.push([upto, about.high]);
    return found;
  };

  /* Recordings that lie further apart than they are long: each as a range of time, by start. */
  T.recordings = function (about) {
    const spans = (about.recorded || []).map(([, start, end]) => [start, end]).sort((a, b) => a[0] - b[0]);
    /** @type {[start: number, end: number][]} */
    const found = [];
    for (const [start, end] of spans) {
      const last = found[found.length - 1];
      if (last && start - last[1] <= 2 * Math.max(last[1] - last[0], end - start)) last[1] = Math.max(last[1], end);
      else found.push([start, end]);
    }
    return found;
  };

  T.rowAt = function (rows, y) {
    let low = 0;
    let high = rows.list.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (rows.list[middle].y <= y) low = middle;
      else high = middle - 1;
    }
    const row = rows.list[low];
    return row && y >= row.y && y < row.y + row.h ? row : null;
  };
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
