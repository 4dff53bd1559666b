// The theme: light, dark, or that of the system. Not a module, so that it runs before the first paint.
(() => {
  "use strict";
  const THEMES = ["auto", "light", "dark"];
  const NAMES = { auto: "Auto", light: "Light", dark: "Dark" };
  const SAID = { auto: "as in the system", light: "light", dark: "dark" };
  let theme = "auto";

  // Another broker's page is another origin with its own storage, so a link between pages carries the theme.
  function remembered() {
    const query = new URLSearchParams(location.search);
    const asked = query.get("theme");
    query.delete("theme");
    const rest = String(query) === "" ? "" : `?${query}`;
    if (asked !== null) history.replaceState(null, "", location.pathname + rest + location.hash);
    try {
      return asked ?? localStorage.getItem("theme");
    } catch {
      return asked;
    }
  }

  function choose(chosen) {
    theme = THEMES.includes(chosen) ? chosen : "auto";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // Storage may be forbidden; then the choice lasts as long as the page.
    }
  }

  choose(remembered());
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => {
      button.textContent = NAMES[theme];
      button.setAttribute("aria-label", `Colours: ${SAID[theme]}`);
    };
    button.addEventListener("click", () => {
      choose(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
      show();
      document.dispatchEvent(new Event("theme"));
    });
    show();
  });
})();
