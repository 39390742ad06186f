"""A headless Chromium for tests and measurements of pages: Selenium, with what these tests ask again and again."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

DRIVER = shutil.which("chromedriver")
"""None = there is no browser. Given to Selenium, which would download one."""
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-background-networking --disable-component-update
    --disable-sync --hide-scrollbars --mute-audio --force-color-profile=srgb --force-device-scale-factor=1"""
MIDDLE = (0.5, 0.5)
PATIENCE = 60  # seconds for an answer: the machine may be busy


class Browser:
    """One Chromium process, with a window for each page."""

    def __init__(self) -> None:
        options = ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        for flag in FLAGS.split():
            options.add_argument(flag)
        self.driver = Chrome(options, Service(DRIVER))
        self._empty = self.shown = self.driver.current_window_handle
        self.logs: dict[str, list[dict[str, Any]]] = {"browser": [], "performance": []}

    def close(self) -> None:
        self.driver.quit()

    def call(self, method: str, **parameters: Any) -> Any:
        """The answer to a command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(method, parameters)

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What has been logged since the first of the pages that are open was opened."""
        self.logs[kind] += self.driver.get_log(kind)
        return self.logs[kind]

    def show(self, window: str) -> None:
        """Turn to a window."""
        self.driver.switch_to.window(window)
        self.shown = window

    def closed(self) -> None:
        """Turn to the first, empty window; with the last page its log goes, too."""
        windows = self.driver.window_handles
        self.show(self._empty)
        if windows == [self._empty]:
            for kind, entries in self.logs.items():
                self.log(kind)
                entries.clear()

    def open(self, url: str, width: int = 900, height: int = 900, **options: bool) -> Page:
        """A new window with the page loaded."""
        return Page(self, url, width, height, **options)


class Page:
    """One window: its content, its log, and its network requests."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        width: int,
        height: int,
        dark: bool = False,
        still: bool = True,
    ) -> None:
        self._browser = browser
        self._url = url.partition("#")[0]
        browser.driver.switch_to.new_window("window")
        self._window = browser.shown = browser.driver.current_window_handle
        self.resize(width, height)
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        pairs = [{"name": name, "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=pairs)
        self.driver.get(url)

    @property
    def driver(self) -> Chrome:
        """Selenium's driver, in this window."""
        if self._browser.shown != self._window:
            self._browser.show(self._window)
        return self._browser.driver

    def call(self, method: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(method, parameters)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def close(self) -> None:
        self.driver.close()
        self._browser.closed()

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited and converted from JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        WebDriverWait(self.driver, PATIENCE, 0.02).until(lambda _: self.run(condition), condition)

    def settle(self) -> None:
        """Wait until changes have been painted."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def _element(self, selector: str, index: int = 0) -> WebElement:
        """An element, scrolled into view."""
        element = self.driver.find_elements(By.CSS_SELECTOR, selector)[index]
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'nearest'})", element)
        return element

    def box_of(self, selector: str, index: int = 0) -> list[float]:
        """(left, top, width, height) of an element, in CSS pixels of the page."""
        return self.driver.execute_script(
            "const box = arguments[0].getBoundingClientRect();"
            "return [box.left + scrollX, box.top + scrollY, box.width, box.height]",
            self._element(selector, index),
        )

    def picture(self, selector: str | None = None) -> np.ndarray:
        """The painted pixels of the window or of one element, (height, width, 3) int."""
        shown = self._element(selector) if selector else self.driver
        self.settle()
        shot = shown.screenshot_as_png if selector else shown.get_screenshot_as_png()
        return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).astype(int)

    def choose(self, selector: str, value: str) -> None:
        """Set the value of a control, as a user does."""
        self.run(
            f"(control => {{ control.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) control.dispatchEvent(new Event(kind)); })"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def text(self, selector: str, index: int = 0) -> str:
        """What an element says."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)[index].get_property("textContent")

    def pressed(self, root: str = "") -> list[str]:
        """The words that are chosen."""
        selector = f"{root} .satt-word[aria-pressed=true]"
        return self.run(f"[...document.querySelectorAll('{selector}')].map(chip => chip.firstChild.data)")

    def _point(
        self,
        selector: str,
        places: Sequence[tuple[float, float]],
        index: int = 0,
        press: bool = False,
    ) -> None:
        """Move a pointer through places of an element, in shares of its size; if it presses, from the first one on."""
        element = self._element(selector, index)
        width, height = element.rect["width"], element.rect["height"]
        actions = ActionBuilder(self.driver, PointerInput("mouse", "mouse"), duration=0)
        pointer = actions.pointer_action
        for number, (across, down) in enumerate(places):
            pointer.move_to(element, round((across - 0.5) * width), round((down - 0.5) * height))
            if press and number == 0:
                pointer.pointer_down()
        if press:
            pointer.pointer_up()
        actions.perform()

    def hover(self, selector: str, index: int = 0) -> None:
        self._point(selector, [MIDDLE], index)

    def hover_at(self, selector: str, across: float, down: float) -> None:
        """Move the mouse to a place within an element, in shares of its width and height."""
        self._point(selector, [(across, down)])

    def click(self, selector: str, index: int = 0) -> None:
        self._point(selector, [MIDDLE], index, press=True)

    def drag(self, selector: str, *places: tuple[float, float]) -> None:
        """Press the mouse on the first place of an element, in shares of its size; move to the others; release."""
        self._point(selector, places, press=True)

    def press(self, key: str, shift: bool = False) -> None:
        keys = {
            "Tab": Keys.TAB,
            "Enter": Keys.ENTER,
            "Home": Keys.HOME,
            "End": Keys.END,
            "Escape": Keys.ESCAPE,
        }
        keys |= {f"Arrow{way}": getattr(Keys, way.upper()) for way in ("Left", "Right", "Up", "Down")}
        actions = ActionChains(self.driver)
        if shift:
            actions.key_down(Keys.SHIFT)
        actions.send_keys(keys.get(key, key))
        if shift:
            actions.key_up(Keys.SHIFT)
        actions.perform()

    def complaints(self) -> list[dict[str, Any]]:
        """Console messages, exceptions, refused requests and broken policies, of all pages that are open."""
        return self._browser.log("browser")

    def requests(self) -> list[str]:
        """Addresses requested since the page was opened, without the page's own data."""
        events = [json.loads(entry["message"])["message"] for entry in self._browser.log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        urls = [each["request"]["url"] for each in sent if each["documentURL"].partition("#")[0] == self._url]
        return [url for url in urls if not url.startswith("data:")]
