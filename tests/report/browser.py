"""A headless Chromium, spoken to over pipes in the DevTools protocol: clicks, errors, requests, pictures.

https://chromedevtools.github.io/devtools-protocol/: messages of JSON that end in a NUL, read by the
browser on descriptor 3 and written on 4 (`--remote-debugging-pipe`).
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_DEADLINE_S = 60


class Browser:
    """One browser with one page; a context manager that ends it.

    Attributes:
        errors: what the console of the page got as an error, exceptions among it.
        requests: the addresses that it asked for, without the page itself.
    """

    def __init__(self, home: Path) -> None:
        program = shutil.which("chromium")
        assert program is not None
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def take_pipes() -> None:
            # Out of the way first: the pipes may be the very descriptors 3 and 4.
            ends = os.dup(to_browser), os.dup(from_browser)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        self._process = subprocess.Popen(
            [program, *flags, f"--user-data-dir={home}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(home), "TMPDIR": str(home)},
            close_fds=False,
            preexec_fn=take_pipes,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._read, selectors.EVENT_READ)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self._loaded = False
        self.errors: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> Browser:
        """The browser with its page."""
        page = next(each for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it and all its processes."""
        os.close(self._write)
        os.killpg(self._process.pid, 9)
        self._process.wait()
        os.close(self._read)

    def look(self, *, dark: bool = False, width: int = 1280, height: int = 900, script: bool = True) -> None:
        """How the page is seen from now on: colours, size in pixels, with or without JavaScript."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._call("Emulation.setScriptExecutionDisabled", value=not script)

    def open(self, path: Path, fragment: str = "") -> float:
        """Load a file anew; how long it took until it was loaded, in seconds."""
        # Between two addresses of one file that differ in their fragment alone nothing would be loaded.
        self._load("about:blank")
        self.errors, self.requests = [], []
        began = time.monotonic()
        self._load(path.as_uri() + (f"#{fragment}" if fragment else ""))
        took_s = time.monotonic() - began
        self.requests = [each for each in self.requests if each.split("#")[0] != path.as_uri()]
        return took_s

    def _load(self, address: str) -> None:
        self._loaded = False
        self._call("Page.navigate", url=address)
        while not self._loaded:
            self._take(self._message())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        said = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def text(self, selector: str) -> str:
        """What a reader sees of an element; empty where it is hidden or is not there."""
        value = self.evaluate(
            f"(() => {{ const each = document.querySelector({json.dumps(selector)});"
            "return each && each.checkVisibility() ? each.innerText : ''; })()"
        )
        return str(value)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element, as a reader does."""
        chosen = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{chosen}.scrollIntoView({{block: 'center'}})")
        self.settle()
        place = self.evaluate(
            f"(() => {{ const box = {chosen}.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            button = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
            self._call("Input.dispatchMouseEvent", type=kind, **button)
        self.settle()

    def settle(self) -> None:
        """Let the page do what it has been told: events, and two pictures of it."""
        frame = (
            "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(go))))"
        )
        self.evaluate(frame)

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key)
        self.settle()

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page, or of what is in view."""
        said = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(said["data"]))

    def printed(self) -> bytes:
        """The page as a PDF on A4."""
        said = self._call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        return base64.b64decode(said["data"])

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            said = self._message()
            if said.get("id") == number:
                assert "error" not in said, f"{method}: {said['error']}"
                return said["result"]
            self._take(said)

    def _message(self) -> Any:
        while b"\0" not in self._buffer:
            assert self._selector.select(_DEADLINE_S), "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, f"the browser has ended: {self._process.poll()}"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _take(self, event: Any) -> None:
        """Keep what an event says."""
        method, told = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(told["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(each.get("value")) for each in told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
