"""A headless Chromium for tests and measurements, controlled over the DevTools protocol through two pipes.

Pipes need neither a driver nor a WebSocket library: messages are JSON, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import io
import json
import os
import select
import shutil
import subprocess
import time

import numpy as np
from PIL import Image

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-extensions --mute-audio --hide-scrollbars
    --force-color-profile=srgb --force-device-scale-factor=1 --remote-debugging-pipe"""
PATIENCE = 60  # seconds for an answer: the machine may be busy


class Browser:
    """One Chromium process with one tab at a time."""

    def __init__(self, profile):
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser reads on descriptor 3 and writes on 4. A shell puts them there.
        command = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        arguments = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", *arguments],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self.events = []

    def close(self):
        self.call("Browser.close")
        self._process.wait(PATIENCE)
        os.close(self._read)
        os.close(self._write)

    def call(self, method, session=None, **parameters):
        """Send a command and wait for its result; events that arrive meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self):
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], PATIENCE)[0]:
                raise TimeoutError("Chromium does not answer")
            received = os.read(self._read, 1 << 20)
            if not received:
                raise RuntimeError("Chromium has gone")
            self._buffer += received
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, url, width=900, height=900, **options):
        """A fresh tab with the page loaded."""
        return Page(self, url, width, height, **options)


class Page:
    """One tab: its content, its log, and its network requests."""

    def __init__(self, browser, url, width, height, dark=False, still=True, touch=False):
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=touch,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        pairs = [{"name": name, "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=pairs)
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def call(self, method, **parameters):
        return self._browser.call(method, self._session, **parameters)

    def close(self):
        self._browser.call("Target.closeTarget", targetId=self._target)

    def run(self, expression):
        """The value of a JavaScript expression, converted from JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def settle(self):
        """Wait until changes have been painted."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def box_of(self, selector, index=0):
        """(left, top, width, height) of an element, in CSS pixels of the page."""
        return self.run(
            f"(() => {{ const element = document.querySelectorAll({json.dumps(selector)})[{index}];"
            "element.scrollIntoView({block: 'nearest'}); const box = element.getBoundingClientRect();"
            "return [box.left + scrollX, box.top + scrollY, box.width, box.height]; })()"
        )

    def picture(self, selector=None):
        """The painted pixels of the page or of one element, (height, width, 3) int."""
        options = {}
        if selector is not None:
            x, y, width, height = self.box_of(selector)
            left, top, right, bottom = self.run(
                "[scrollX, scrollY, scrollX + innerWidth, scrollY + innerHeight]"
            )
            # What a window does not hold is painted anew for the picture, sometimes without its canvases.
            beyond = x < left or y < top or x + width > right or y + height > bottom
            clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
            options = {"clip": clip, "captureBeyondViewport": beyond}
        self.settle()
        shot = base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"])
        return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).astype(int)

    def hover_at(self, selector, across, down):
        """Move the mouse to a place within an element, in shares of its width and height."""
        left, top, width, height = self.box_of(selector)
        scroll = self.run("[scrollX, scrollY]")
        place = {"x": left + across * width - scroll[0], "y": top + down * height - scroll[1]}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)

    def choose(self, selector, value):
        """Set the value of a control, as a user does."""
        self.run(
            f"(control => {{ control.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) control.dispatchEvent(new Event(kind)); })"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def text(self, selector, index=0):
        """What an element says."""
        return self.run(f"document.querySelectorAll({json.dumps(selector)})[{index}].textContent")

    def pressed(self, root=""):
        """The words that are chosen."""
        selector = f"{root} .satt-word[aria-pressed=true]"
        return self.run(f"[...document.querySelectorAll('{selector}')].map(chip => chip.firstChild.data)")

    def _middle(self, selector, index):
        left, top, width, height = self.box_of(selector, index)
        scroll = self.run("[scrollX, scrollY]")
        return {"x": left + width / 2 - scroll[0], "y": top + height / 2 - scroll[1]}

    def hover(self, selector, index=0):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self._middle(selector, index))

    def click(self, selector, index=0):
        place = self._middle(selector, index)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def tap(self, selector, index=0):
        place = self._middle(selector, index)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[place])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def drag(self, selector, *places):
        """Press the mouse on the first place of an element, in shares of its size; move to the others; release."""
        left, top, width, height = self.box_of(selector)
        scroll = self.run("[scrollX, scrollY]")
        points = [{"x": left + x * width - scroll[0], "y": top + y * height - scroll[1]} for x, y in places]
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **points[0])
        self.call("Input.dispatchMouseEvent", type="mousePressed", button="left", clickCount=1, **points[0])
        for point in points[1:]:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", button="left", **point)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", button="left", clickCount=1, **points[-1])

    def press(self, key, shift=False):
        codes = {"Tab": 9, "Enter": 13, "Home": 36, "End": 35, "Escape": 27, " ": 32}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        options = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 * shift}
        self.call("Input.dispatchKeyEvent", type="keyDown", **options)
        self.call("Input.dispatchKeyEvent", type="keyUp", **options)

    def complaints(self):
        """Console messages, exceptions and log entries, refused requests and broken policies among them."""
        self.run("1")  # earlier events arrive before the answer
        wanted = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self._events() if event["method"] in wanted]

    def requests(self):
        """Addresses requested since the tab was opened, without the page's own data."""
        self.run("1")
        sent = [event for event in self._events() if event["method"] == "Network.requestWillBeSent"]
        urls = [event["params"]["request"]["url"] for event in sent]
        return [url for url in urls if not url.startswith("data:")]

    def _events(self):
        return [event for event in self._browser.events if event.get("sessionId") == self._session]
