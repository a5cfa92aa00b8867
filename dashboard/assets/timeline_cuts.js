/* What page and engine know of a recording alike: lanes that are made of others' events, and the axis, out of
   which empty time between recordings is cut but for a break. The picture knows places on it, people read times. */
(function (/** @type {htk.Timeline} */ T) {
  "use strict";

  /* A value of one axis on the other: exact outside of the stretches, in proportion within them. */
  function moved(value, stretches, from, to) {
    let shift = 0;
    for (const stretch of stretches) {
      const [start, end, newStart, newEnd] = [stretch[from], stretch[from + 1], stretch[to], stretch[to + 1]];
      if (value < start) break;
      if (value < end) return newStart + ((value - start) * (newEnd - newStart)) / (end - start);
      shift = newEnd - end;
    }
    return value + shift;
  }

  /* Whether the bars of a lane are made of others' events, and are none of the recording. */
  T.isMade = (lane) => lane[1] === "busy" || lane[1] === "phases";

  /* The time at a place of the axis, and the place of a time. */
  T.timeAt = (about, place) => moved(place, about.cuts || [], 2, 0);
  T.placeOf = (about, time) => moved(time, about.cuts || [], 0, 2);
  T.lasted = (about, start, end) => T.timeAt(about, end) - T.timeAt(about, start);

  /* Breaks of the axis, those in view: where they begin and end, and the time that is left out. */
  T.breaks = (about, view) => (about.cuts || []).filter((cut) => cut[3] > view.start && cut[2] < view.end)
    .map(([start, end, from, upto]) => ({ from, upto, time: end - start }));
})(globalThis.htkTimeline ??= /** @type {any} */ ({}));
