/* The script of tables, the largest after that of charts, is fetched when a page first has one. */
(function () {
  "use strict";
  const React = window.React;
  const SCRIPT = "/_dash-component-suites/dash_ag_grid/dash_ag_grid.min.js";
  /** @type {Promise<any> | null} */
  let fetched = null;
  let loaded = null;

  function fetchTable() {
    fetched ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = SCRIPT;
      script.onload = () => {
        const table = window.dash_ag_grid.AgGrid;
        // Dash goes on asking for a table by that name: another one would make all of them anew.
        window.dash_ag_grid = { ...window.dash_ag_grid, AgGrid: Object.assign(AgGrid, table) };
        loaded = table;
        resolve(table);
      };
      script.onerror = () => { fetched = null; reject(new Error(`${SCRIPT} was not answered`)); };
      document.head.append(script);
    });
    return fetched;
  }

  /* Whoever prints a page waits for nothing: a page with tables below has the script soon. */
  const waiting = setInterval(() => {
    if (fetched) clearInterval(waiting);
    else if (document.querySelector("main .nearby")) fetchTable();
  }, 2000);

  function AgGrid(given) {
    const [table, come] = React.useState(() => loaded);
    React.useEffect(() => { fetchTable().then((found) => come(() => found)); }, []);
    return table && React.createElement(table, given);
  }

  window.dash_ag_grid = { AgGrid };
})();
