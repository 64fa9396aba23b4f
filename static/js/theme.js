// Runs before the page is painted, so that a chosen theme never flashes. Not a module on purpose.
"use strict";
(() => {
  const root = document.documentElement;
  const order = ["auto", "light", "dark"];
  const read = () => {
    try {
      const value = localStorage.getItem("theme");
      return order.includes(value) ? value : "auto";
    } catch {
      return "auto"; // storage can be forbidden; the theme then lasts as long as the page
    }
  };
  const apply = (theme) => {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
  };
  let theme = read();
  apply(theme);
  window.firstTokenTheme = {
    get current() {
      return theme;
    },
    next() {
      theme = order[(order.indexOf(theme) + 1) % order.length];
      apply(theme);
      try {
        localStorage.setItem("theme", theme);
      } catch {
        // see read()
      }
      return theme;
    },
  };
})();
