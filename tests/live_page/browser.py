"""Headless Chromium: reads a page, tabs from control to control, changes the colour scheme."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.support.waiting import eventually

# Without these, Chromium contacts its vendor's hosts at every start, and needs more rights than a container has.
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
DESKTOP, PHONE = (1280, 800), (390, 844)

#: Every visible text with too little contrast between its colour and its background (WCAG 2, AA).
LOW_CONTRAST = """
const channel = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return { rgb: [r, g, b], alpha: a / 255 };
}
const luminance = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
function behind(node) {
  for (let at = node; at; at = at.parentElement) {
    const { rgb, alpha } = rgba(getComputedStyle(at).backgroundColor);
    if (alpha > 0.99) return rgb;
    if (alpha > 0.01) throw new Error("a background that shines through: " + at.outerHTML.slice(0, 200));
  }
  return [255, 255, 255];
}
const found = [];
let checked = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim();
  const parent = walker.currentNode.parentElement;
  if (!text || ["SCRIPT", "NOSCRIPT"].includes(parent.tagName) || !parent.checkVisibility()) continue;
  if (parent.closest(".unseen, .skip")) continue;
  const [one, two] = [luminance(rgba(getComputedStyle(parent).color).rgb), luminance(behind(parent))];
  const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
  checked += 1;
  if (contrast < 4.5) found.push(`${text.slice(0, 60)}: ${contrast.toFixed(2)}`);
}
return [checked, found];
"""

#: Elements that are wider than the page.
TOO_WIDE = """
const width = document.documentElement.clientWidth;
return [...document.body.querySelectorAll("*")]
  .filter((node) => node.checkVisibility() && !node.closest("svg, thead, .unseen, .skip"))
  .filter((node) => node.getBoundingClientRect().right > width + 0.5)
  .map((node) => node.outerHTML.slice(0, 120));
"""

CONTROLS = """
return [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((node) => node.checkVisibility());
"""


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Open a page, and wait until it shows something."""
        self.driver.get(url)
        eventually("the page is live", lambda: self.text("#pulse-text") == "live" and self.text("#headline"))

    def look_like(self, size: tuple[int, int], scheme: str = "light", *, reduced_motion: bool = False) -> None:
        """Set the size of the window; `scheme` is the system's colour scheme."""
        width, height = size
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE},
        )
        motion = "reduce" if reduced_motion else "no-preference"
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def script(self, source: str, *arguments: Any) -> Any:
        """Run JavaScript in the page."""
        return self.driver.execute_script(source, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        """Return every element that the selector finds."""
        found: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def text(self, selector: str) -> str:
        """Return the text of the first element that the selector finds; "" if there is none."""
        text: str = self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return text

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements that the selector finds."""
        texts: list[str] = self.script(
            "return [...document.querySelectorAll(arguments[0])].map((node) => node.innerText)", selector
        )
        return texts

    def show(self, panel: str) -> None:
        """Open a panel by its tab."""
        self.script("document.querySelector(`#tabs a[href='#${arguments[0]}']`).click()", panel)
        shown = f"return !document.getElementById('panel-{panel}').hidden"
        eventually(f"{panel} is shown", lambda: self.script(shown))

    def press(self, *keys: str) -> None:
        """Press keys in the focused element."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def tab_through(self, at_most: int = 200) -> dict[WebElement, str]:
        """Press Tab from the top of the page until the focus leaves it; return the focused elements with outlines."""
        self.script("document.body.tabIndex = -1; document.body.focus()")
        visited: dict[WebElement, str] = {}
        for _ in range(at_most):
            self.press(Keys.TAB)
            focused = self.driver.switch_to.active_element
            if focused.tag_name == "body" or focused in visited:
                break
            visited[focused] = self.script("return getComputedStyle(document.activeElement).outline")
        return visited

    def leave(self) -> None:
        """Leave the page, before its server ends and its next request fails."""
        self.driver.get("about:blank")
        self.complaints()

    def complaints(self) -> list[str]:
        """Return the errors and violations of the page's policy in the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a Chromium with an empty profile."""
    options = webdriver.ChromeOptions()
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or ""
    options.accept_insecure_certs = True  # of the throw-away authority of `up --security`
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
