/* Which lanes are rows of the picture, and where: ranks and tracks can be folded. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const DEEP = new Set(["gpu ranges", "python", "profiler"]);

  const MOST_STUCK = 8; // lanes of a pinned track: what is pinned does not scroll

  const keyOf = (lane) => `${lane[0]}|${lane[1]}|${lane[2]}`;
  T.rankKey = (rank) => `rank ${rank}`;

  /* What is folded at first: the more ranks, the more. */
  T.folded = function (about) {
    const ranks = [...new Set(about.lanes.map((l) => l[0]))];
    const folded = new Set();
    about.lanes.forEach((lane) => {
      const place = ranks.indexOf(lane[0]);
      if (DEEP.has(lane[1]) || lane[2].startsWith("ranges, thread")) folded.add(keyOf(lane));
      if (ranks.length > 2 && ["threads", "ranges", "counters"].includes(lane[1])) folded.add(keyOf(lane));
      if (ranks.length > 8 && place >= 4) folded.add(T.rankKey(lane[0]));
    });
    return folded;
  };

  function title(about, rank) {
    const facts = about.ranks.find((r) => r[0] === rank);
    const device = facts && facts[1] ? ` · ${facts[1].replace(/^NVIDIA |^AMD /, "")}` : "";
    return rank < 0 ? `recording${device}` : `rank ${rank}${device}`;
  }

  /* The tracks of a recording by their keys, each with its lanes. */
  T.tracks = function (about) {
    /** @type {Map<string, htk.Track>} */
    const tracks = new Map();
    about.lanes.forEach((lane, number) => {
      const key = keyOf(lane);
      if (!tracks.has(key)) tracks.set(key, { key, rank: lane[0], section: lane[1], track: lane[2], lanes: [] });
      tracks.get(key).lanes.push(number);
    });
    return tracks;
  };

  /* Whether a track is one of those that a text names: every word of it, in any order. */
  T.isTrackOf = function (track, text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const name = `${T.rankKey(track.rank)} ${track.section} ${track.track}`.toLowerCase();
    return words.every((word) => name.includes(word));
  };

  /* Tracks of one rank in the order that was chosen for it. */
  function arranged(tracks, order) {
    const at = new Map(order.map((key, k) => [key, k]));
    if (!tracks.some((track) => at.has(track.key))) return tracks;
    const position = (track) => at.get(track.key) ?? order.length;
    return [...tracks].sort((a, b) => position(a) - position(b));
  }

  /* A track's rows: one for each depth, or one where it is folded. */
  function addTrack(rows, track, folded, about, stuck) {
    const isChart = track.section === "counters";
    const folds = track.lanes.length > 1 || isChart;
    const open = !folded.has(track.key);
    const lanes = open ? track.lanes.slice(0, stuck ? MOST_STUCK : undefined) : track.lanes.slice(0, 1);
    for (const number of lanes) {
      const depth = about.lanes[number][3];
      const h = isChart && open ? T.CHART : T.LANE;
      const counter = isChart ? about.counters.find((c) => c.lane === number) : null;
      const y = rows.height;
      const title = counter && open ? counter.name : track.track;
      const label = stuck && track.rank >= 0 ? `${T.rankKey(track.rank)} · ${title}` : title;
      rows.list.push({ y, h, rank: track.rank, lane: number, key: track.key, label: depth && !counter ? "" : label,
        folds: folds && !depth, open, section: track.section, depth, pinned: stuck, counter });
      rows.at[number] = y;
      const gpu = ["streams", "idle", "groups", "counters", "gpu ranges"].includes(track.section);
      const block = rows.blocks[rows.blocks.length - 1];
      if (block && block.rank === track.rank && block.gpu === gpu && block.end === y) block.end = y + h;
      else rows.blocks.push({ rank: track.rank, gpu, start: y, end: y + h });
      rows.height += h;
    }
  }

  /* Rows from top to bottom: pinned tracks, which do not scroll, then the ranks. A rank's first row
     stands for the rank. A filter leaves the tracks that it names, and opens their ranks. */
  T.rows = function (about, folded, { pinned = [], order = [], filter = "" } = {}) {
    const all = T.tracks(about);
    /** @type {htk.Rows} */
    const rows = { list: [], blocks: [], at: new Float32Array(about.lanes.length).fill(-1), height: 0, pinned: 0 };
    const stuck = new Set(pinned.filter((key) => all.has(key) && all.get(key).section !== "busy"));
    for (const key of stuck) addTrack(rows, all.get(key), folded, about, true);
    rows.pinned = rows.height;
    const byRank = new Map();
    for (const track of all.values()) {
      if (!byRank.has(track.rank)) byRank.set(track.rank, []);
      byRank.get(track.rank).push(track);
    }
    for (const [rank, tracks] of byRank) {
      const busy = tracks.find((track) => track.section === "busy");
      const rest = arranged(tracks, order).filter((track) => track !== busy && !stuck.has(track.key)
        && (!filter || T.isTrackOf(track, filter)));
      if (filter && !rest.length) continue;
      const key = T.rankKey(rank);
      const open = !!filter || !folded.has(key);
      rows.list.push({ y: rows.height, h: T.HEAD, rank, head: true, lane: busy ? busy.lanes[0] : -1, key,
        label: title(about, rank), folds: !filter, open });
      if (busy) rows.at[busy.lanes[0]] = rows.height;
      rows.height += T.HEAD;
      if (open) for (const track of rest) addTrack(rows, track, folded, about, false);
    }
    return rows;
  };

  /* Where on the canvas a height of the rows is: pinned ones stay, the others scroll beneath. */
  T.screenY = (S, y) => T.AXIS + y - (y < S.rows.pinned ? 0 : S.scroll);

  /* The row under a height of the canvas. */
  T.rowUnder = function (S, screen) {
    const y = screen - T.AXIS;
    return y < 0 ? null : T.rowAt(S.rows, y < S.rows.pinned ? y : y + S.scroll);
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
