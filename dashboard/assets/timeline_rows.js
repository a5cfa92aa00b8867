/* Which lanes are rows of the picture, and where: ranks and tracks can be folded. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";
  const DEEP = new Set(["gpu ranges", "python", "profiler"]);

  const NO_RANK = -2; // of a node's row; -1: the recording's own
  const MOST_STUCK = 8; // lanes of a pinned track: what is pinned does not scroll

  const keyOf = (lane) => `${lane[0]}|${lane[1]}|${lane[2]}`;
  T.rankKey = (rank) => `rank ${rank}`;
  T.nodeKey = (node) => `node ${node.name}`;

  /* Opens a rank, and the node that it is of. */
  T.unfold = function (S, rank) {
    S.folded.delete(T.rankKey(rank));
    const node = S.about.nodes.find((n) => n.ranks.includes(rank));
    if (node) S.folded.delete(T.nodeKey(node));
  };

  /* What is folded at first: the more ranks, the more. */
  T.folded = function (about) {
    const ranks = new Map([...new Set(about.lanes.map((l) => l[0]))].map((rank, place) => [rank, place]));
    const folded = new Set(about.nodes.map(T.nodeKey));
    about.lanes.forEach((lane) => {
      const place = ranks.get(lane[0]);
      if (DEEP.has(lane[1]) || lane[2].startsWith("ranges, thread")) folded.add(keyOf(lane));
      if (ranks.size > 2 && ["threads", "ranges", "counters"].includes(lane[1])) folded.add(keyOf(lane));
      if ((ranks.size > 8 && place >= 4)) folded.add(T.rankKey(lane[0]));
    });
    return folded;
  };

  T.rankRange = function (ranks) {
    const last = ranks[ranks.length - 1];
    const together = last - ranks[0] === ranks.length - 1;
    return together && ranks.length > 1 ? `ranks ${ranks[0]} to ${last}` : `${ranks.length} rank${ranks.length > 1 ? "s" : ""}`;
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
      if (lane[1] !== "node" && !tracks.has(key)) tracks.set(key, { key, rank: lane[0], section: lane[1], track: lane[2], lanes: [] });
      if (lane[1] !== "node") tracks.get(key).lanes.push(number);
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

  /* Rows from top to bottom: pinned tracks, which do not scroll, then the ranks, many of them by node.
     A rank's first row stands for the rank, a node's for the node. A filter leaves the tracks that it
     names, and opens their ranks. */
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
    const isShown = (track) => track.section !== "busy" && !stuck.has(track.key) && (!filter || T.isTrackOf(track, filter));
    /* A row that stands for the rows below it, drawn as the strip of its lane. */
    const addHead = (key, lane, facts) => {
      const open = !!filter || !folded.has(key);
      rows.list.push({ y: rows.height, h: T.HEAD, head: true, lane, key, folds: !filter, open, ...facts });
      if (lane >= 0) rows.at[lane] = rows.height;
      rows.height += T.HEAD;
      return open;
    };
    const addRank = (rank, inner) => {
      const tracks = byRank.get(rank);
      const busy = tracks.find((track) => track.section === "busy");
      const rest = arranged(tracks, order).filter(isShown);
      if (filter && !rest.length) return;
      if (addHead(T.rankKey(rank), busy ? busy.lanes[0] : -1, { rank, inner, label: title(about, rank) })) {
        for (const track of rest) addTrack(rows, track, folded, about, false);
      }
    };
    for (const node of about.nodes) {
      const ranks = node.ranks.filter((rank) => byRank.has(rank) && (!filter || byRank.get(rank).some(isShown)));
      if (!ranks.length) continue;
      const label = `${node.name} · ${T.rankRange(node.ranks)}`;
      if (addHead(T.nodeKey(node), node.lane, { rank: NO_RANK, label })) ranks.forEach((rank) => addRank(rank, true));
    }
    const placed = new Set(about.nodes.flatMap((node) => node.ranks));
    for (const rank of byRank.keys()) if (!placed.has(rank)) addRank(rank, false);
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
