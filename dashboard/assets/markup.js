/* Components of Dash that the pages are made of (markup.py): elements as plain data, places that are
   filled when they come near the window, and parts that the server is asked for. */
(function () {
  "use strict";
  const React = window.React;
  const h = React.createElement;

  /* As links of Dash do. */
  function follow(event) {
    if (event.metaKey || event.shiftKey || event.altKey || event.ctrlKey) return;
    event.preventDefault();
    window.htkVisit(event.currentTarget.getAttribute("href"));
    window.scrollTo(0, 0);
  }

  /* An element of the data; an address that would run something becomes another. */
  function drawn(node, live) {
    if (node === null || node === undefined || typeof node === "boolean") return null;
    if (Array.isArray(node)) return h(React.Fragment, null, ...node.map((each) => drawn(each, live)));
    if (typeof node !== "object") return node;
    if ("live" in node) return live[node.live];
    const { tag, props, inside } = node;
    const own = props.href === undefined ? props : { ...props, href: window.dash_clientside.clean_url(props.href) };
    const within = (Array.isArray(inside) ? inside : [inside]).map((each) => drawn(each, live));
    return tag === "link" ? h("a", { ...own, onClick: follow }, ...within) : h(tag, own, ...within);
  }

  function Markup({ tree, children }) {
    return drawn(tree, [].concat(children));
  }

  /* Holds the room of what comes; who reaches it by keys makes it come. */
  function Nearby({ height, label, children }) {
    const place = React.useRef(null);
    const [isNear, come] = React.useState(false);
    React.useEffect(() => (isNear ? undefined : window.htkWhenNear(place.current, (isPrinted) => {
      if (isPrinted) window.ReactDOM.flushSync(() => come(true));
      else come(true);
    })), [isNear]);
    if (isNear) return h("div", { className: "nearby", tabIndex: -1 }, children);
    const style = { height: `${height}px` };
    return h("div", { ref: place, className: "nearby", style, tabIndex: 0, role: "group", "aria-label": label, onFocus: () => come(true) });
  }

  /* Says that it is wanted when its turn has come; its answer says that it is there. */
  function PagePart({ id, className, height, isAnswered, children, setProps }) {
    const place = React.useRef(null);
    const want = React.useRef(null);
    want.current = () => setProps({ isWanted: true });
    React.useEffect(() => window.htkAskInTurn(place.current, () => want.current()), []);
    React.useEffect(() => (isAnswered ? window.htkAnswered(place.current) : undefined), [isAnswered]);
    const key = window.dash_component_api.stringifyId(id);
    const isLoading = isAnswered ? undefined : "true";
    const style = height ? { minHeight: `${height}px` } : undefined;
    return h("div", { ref: place, id: key, className, style, "data-dash-is-loading": isLoading }, children);
  }

  window.htk_dash = { Markup, Nearby, PagePart };
})();
