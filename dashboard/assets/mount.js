/* Puts the timeline into its page when Dash has drawn it. */
(function () {
  "use strict";
  function legend(bar, about, dark) {
    const colours = dark ? window.htkTimeline.DARK : window.htkTimeline.LIGHT;
    about.kinds.forEach((kind, k) => {
      const item = document.createElement("span");
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = colours[k];
      item.append(swatch, kind);
      bar.append(item);
    });
    const count = document.createElement("span");
    count.textContent = `${about.events.toLocaleString("en")} events`;
    bar.append(count);
  }

  function labels(place, about) {
    const column = document.createElement("div");
    column.className = "labels";
    column.style.paddingTop = `${window.htkTimeline.AXIS}px`;
    for (const text of about.labels) {
      const row = document.createElement("div");
      row.style.height = row.style.lineHeight = `${window.htkTimeline.LANE}px`;
      row.textContent = text;
      column.append(row);
    }
    place.append(column);
  }

  async function build(place) {
    const query = window.location.search || "?";
    const about = await (await fetch(`/timeline/lanes${query}`)).json();
    const dark = document.documentElement.dataset.mantineColorScheme === "dark";
    const bar = document.createElement("div");
    bar.className = "bar";
    const search = document.createElement("input");
    search.placeholder = "search names";
    search.setAttribute("aria-label", "search names");
    bar.append(search);
    legend(bar, about, dark);
    const frame = document.createElement("div");
    frame.className = "frame";
    place.append(bar, frame);
    labels(frame, about);
    const join = query === "" || query === "?" ? "?" : `${query}&`;
    const detail = document.getElementById("event");
    let wanted = "";
    const handle = window.htkTimeline.mount(
      frame,
      about,
      { view: (a, b, w) => fetch(`/timeline/view${join}start=${a}&end=${b}&width=${w}`).then((r) => r.arrayBuffer()) },
      {
        dark,
        found: (name) => wanted && name.toLowerCase().includes(wanted),
        select: async (span) => {
          if (!span) { detail.textContent = ""; return; }
          const answer = await fetch(`/timeline/event${join}table=${span.table}&row=${span.row}`);
          const facts = await answer.json();
          detail.textContent = Object.entries(facts)
            .map(([k, v]) => `${k.padEnd(22)} ${k.endsWith("_ns") ? window.htkTimeline.time(v) : v}`)
            .join("\n");
        },
      },
    );
    search.addEventListener("input", () => { wanted = search.value.toLowerCase(); handle.redraw(); });
    window.htkHandle = handle;
  }

  window.htkMountTimeline = function () {
    requestAnimationFrame(() => {
      const place = document.getElementById("timeline");
      if (place && !place.dataset.on) {
        place.dataset.on = "1";
        build(place);
      }
    });
    return "";
  };
})();
