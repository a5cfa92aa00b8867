/* Charts and tables are made when they come near the window: what nobody scrolls to costs nothing.
   All are made before the page is printed. */
(function () {
  "use strict";
  const MARGIN = "50% 0px"; // of the window, above and below it: made before it is seen
  const waiting = new Map(); // what to do, by the element that is to come near
  /** @type {IntersectionObserver} */
  let observer;

  function forget(element) {
    waiting.delete(element);
    observer.unobserve(element);
  }

  function arrive(element, isPrinted) {
    const act = waiting.get(element);
    forget(element);
    if (act) act(isPrinted);
  }

  /* Does something once, when the element is near: at once where it is to be printed. */
  window.htkWhenNear = function (element, act) {
    observer ??= new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) arrive(entry.target, false);
    }, { rootMargin: MARGIN });
    for (const other of [...waiting.keys()]) if (!other.isConnected) forget(other); // its page was left
    waiting.set(element, act);
    observer.observe(element);
    return () => { if (waiting.get(element) === act) forget(element); };
  };

  window.addEventListener("beforeprint", () => { for (const element of [...waiting.keys()]) arrive(element, true); });
})();
