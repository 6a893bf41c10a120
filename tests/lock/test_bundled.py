"""The pip part without uv: conda-lock's own resolver, on an index of this machine."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from envaudit.errors import NeededError
from envaudit.lock import pippart
from envaudit.lock.condarc import Settings
from envaudit.lock.locking import make_lock
from envaudit.lock.request import LockRequest
from envaudit.lock.virtual import virtual_packages
from tests.lock.channel import LocalChannel
from tests.lock.sources import CHANNEL, source_of
from tests.lock.test_pip import write_wheel


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_words: object) -> None:
        """Nothing: the test looks at the lock."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of an index with three distributions, and their digests."""
    digests = {}
    for name, version, needs in (
        ("trainer", "1.0", ("numpy>=1.20", "tqdm")),
        ("tqdm", "1.0", ()),
        ("numpy", "1.26.4", ()),
    ):
        folder = tmp_path / "index" / "simple" / name
        folder.mkdir(parents=True)
        digests[name] = write_wheel(folder, name, version, *needs)
        file = f"{name}-{version}-py3-none-any.whl"
        (folder / "index.html").write_text(f'<a href="{file}#sha256={digests[name]}">{file}</a>')
    handler = functools.partial(_Quiet, directory=str(tmp_path / "index"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/simple", digests
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("has_uv", [True, False])
def test_pip_part_is_the_same_with_and_without_uv(
    has_uv: bool,
    index: tuple[str, dict[str, str]],
    train_channel: LocalChannel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the index of the source alone, on the numpy of conda."""

    def no_uv() -> str:
        raise NeededError("uv is not installed")

    if not has_uv:
        monkeypatch.setattr(pippart, "find_uv", no_uv)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    address, digests = index
    more = f'pip-repositories: ["{address}"]\nallow-pypi-requests: false'
    source = source_of(tmp_path, "python=3.10", "numpy=1.26", "pip", pip=["trainer"], more=more)
    settings = Settings(mirrored_channels={CHANNEL: (train_channel.url,)})
    path = str(tmp_path / "conda-lock.yml")
    made = make_lock(LockRequest((source,), path, ("linux-64",), settings, virtual_packages()))
    assert made.lock is not None
    found = {
        package.name: (package.version, package.sha256, dict(package.dependencies))
        for package in made.lock.of("linux-64", manager="pip")
    }
    expected = {
        "tqdm": ("1.0", digests["tqdm"], {}),
        "trainer": ("1.0", digests["trainer"], {"numpy": "*", "tqdm": "*"}),
    }
    assert expected == found
