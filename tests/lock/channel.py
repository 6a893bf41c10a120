"""A real conda channel on this machine: built from recipes, indexed, served whole or with faults.

`python -m tests.lock.channel DIR` builds the channels below DIR, and beside them a `condarc` that
sends https://conda.example/train to the first: what `lockfiles/README.md` begins with.
"""

from __future__ import annotations

import base64
import http.server
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from tests.lock.packages import Recipe, build_package, recipes_of

# In a process of its own: rattler may abort the interpreter that it leaves behind.
_INDEX = """
import asyncio, os, pathlib, sys
from rattler.index import index_fs
asyncio.run(index_fs(pathlib.Path(sys.argv[1]), write_zst=False, write_shards=False, force=True))
os._exit(0)
"""

FAULTS = ("404", "500", "html", "half", "other bytes", "drop")
# Beside those: the answer waits until the fault is taken away, 60 s at most.
WAIT = "wait"


@dataclass(frozen=True)
class LocalChannel:
    """A channel in a folder.

    Attributes:
        folder: with a folder for each platform.
    """

    folder: Path

    @property
    def url(self) -> str:
        """Its file:// address."""
        return self.folder.as_uri()

    def package(self, name: str) -> Path:
        """The one package whose file name begins so.

        Raises:
            LookupError: there is none, or more than one.
        """
        found = [path for path in sorted(self.folder.glob("*/*")) if path.name.startswith(name)]
        if len(found) != 1:
            raise LookupError(f"{name}: {[path.name for path in found]}")
        return found[0]


def build_channel(
    folder: Path, name: str = "train", more: Iterable[tuple[str, Recipe]] = (), *, recipes: bool = True
) -> LocalChannel:
    """Build, write and index a channel.

    Args:
        folder: where it goes.
        name: of the folder of recipes under fixtures/channel/, `train` or `extra`.
        more: packages beside those of the recipes.
        recipes: False for a channel of `more` alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "noarch").mkdir(exist_ok=True)
    for package, recipe in [*(recipes_of(name) if recipes else ()), *more]:
        build_package(package, recipe, folder)
    index_channel(folder)
    return LocalChannel(folder)


def index_channel(folder: Path) -> None:
    """Write the repodata.json of each platform folder anew."""
    subprocess.run([sys.executable, "-c", _INDEX, str(folder)], check=True, timeout=60)


@dataclass
class ChannelServer:
    """What the server of `served` is told, and what it heard.

    Attributes:
        url: of the root, `http://127.0.0.1:PORT`; channels are the folders below it.
        faults: what happens to paths that end so: a name of `FAULTS`.
        requests: the paths that were asked for, in order, without tokens.
    """

    url: str
    faults: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


@contextmanager
def served(
    root: Path, faults: Mapping[str, str] | None = None, *, password: str = "", token: str = ""
) -> Iterator[ChannelServer]:
    """Serve the channels under `root` on 127.0.0.1.

    Args:
        root: its folders are the channels.
        faults: end of a path (`repodata.json`, `noarch/pip-24.0-pyhd8ed1ab_0.conda`) to a name of `FAULTS`.
        password: `USER:PASSWORD`, without which the answer is 401.
        token: without `/t/TOKEN` before the channel, the answer is 401.
    """
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    state = ChannelServer(f"http://127.0.0.1:{server.server_address[1]}", dict(faults or {}))
    server.state, server.root = state, root  # type: ignore[attr-defined]
    server.password, server.token = password, token  # type: ignore[attr-defined]
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Silent: the requests stand in the state."""

    def _answer(self, body: bool) -> None:
        server = self.server
        path = unquote(self.path.partition("?")[0])
        token: str = server.token  # type: ignore[attr-defined]
        allowed = self._has_password(server.password)  # type: ignore[attr-defined]
        if token:
            allowed = path.startswith(f"/t/{token}/")
            path = path[len(f"/t/{token}") :] if allowed else path
        state: ChannelServer = server.state  # type: ignore[attr-defined]
        state.requests.append(path)
        if not allowed:
            return self._send(401, b"who are you?", body)
        root: Path = server.root  # type: ignore[attr-defined]
        place = (root / path.lstrip("/")).resolve()
        if root.resolve() not in place.parents or not place.is_file():
            return self._send(404, b"not here", body)
        data = place.read_bytes()
        fault = next((fault for end, fault in list(state.faults.items()) if path.endswith(end)), "")
        return self._send_fault(fault, data, body) if fault else self._send(200, data, body)

    def _has_password(self, password: str) -> bool:
        expected = "Basic " + base64.b64encode(password.encode()).decode()
        return not password or self.headers.get("Authorization") == expected

    def _send_fault(self, fault: str, data: bytes, body: bool) -> None:
        if fault == "404":
            self._send(404, b"not here", body)
        elif fault == "500":
            self._send(500, b"broken", body)
        elif fault == "html":
            self._send(200, b"<!DOCTYPE html><html><body>Please log in.</body></html>", body, "text/html")
        elif fault == "other bytes":
            self._send(200, data[:-1] + bytes([data[-1] ^ 1]), body)
        elif fault == "half":
            self._send(200, data, body, sent_bytes=len(data) // 2)
        elif fault == WAIT:
            self._wait()
            self._send(200, data, body)
        elif fault == "drop":
            self.close_connection = True
        else:
            raise ValueError(f"{fault!r} is none of {FAULTS}")

    def _wait(self) -> None:
        state: ChannelServer = self.server.state  # type: ignore[attr-defined]
        until = time.monotonic() + 60
        while WAIT in state.faults.values() and time.monotonic() < until:
            time.sleep(0.02)

    def _send(
        self,
        status: int,
        data: bytes,
        body: bool,
        kind: str = "application/octet-stream",
        sent_bytes: int = -1,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="channel"')
        self.end_headers()
        if body:
            try:
                self.wfile.write(data if sent_bytes < 0 else data[:sent_bytes])
            except OSError:
                self.close_connection = True  # whoever asked is gone
            if sent_bytes >= 0:
                self.close_connection = True


def conda_free_path() -> str:
    """A PATH without conda, mamba and micromamba."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    programs = ("conda", "mamba", "micromamba", "pixi")
    return os.pathsep.join(
        folder for folder in folders if not any((Path(folder) / program).exists() for program in programs)
    )


def main(folder: Path) -> None:
    """Build the channels `train` and `extra` below a folder, and settings that lead to them."""
    mirrors = {}
    for name in ("train", "extra"):
        channel = build_channel(folder / name, name)
        mirrors[f"https://conda.example/{name}"] = [channel.url]
    settings = folder / "condarc"
    settings.write_text(json.dumps({"mirrored_channels": mirrors}, indent=1) + "\n", "utf-8")
    print(f"export CONDARC={shlex.quote(str(settings))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
