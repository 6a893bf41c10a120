"""Servers of https, and proxies, for tests of how a channel is reached."""

from __future__ import annotations

import functools
import http.server
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LEAF = "basicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1\n"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Silent."""


class QuietServer(http.server.ThreadingHTTPServer):
    """One that takes it calmly when a client hangs up."""

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up on a certificate is what the test is about."""


@contextmanager
def serving(server: http.server.HTTPServer) -> Iterator[int]:
    """Run a server while the block runs; gives its port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, and leaf.pem and leaf.key of 127.0.0.1 signed by it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "leaf.ext").write_text(LEAF)
    new = [openssl, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for argv in (
        [*new, "-x509", "-days", "2", "-subj", "/CN=test ca", "-keyout", "ca.key", "-out", "ca.pem"],
        [*new, "-subj", "/CN=127.0.0.1", "-keyout", "leaf.key", "-out", "leaf.csr"],
        [
            *(openssl, "x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", "leaf.ext", "-out", "leaf.pem"),
        ],
    ):
        subprocess.run(argv, cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


@pytest.fixture
def https_channel(channels_root: Path, certificates: Path) -> Iterator[str]:
    """The address of `train` over https, with a certificate that no system knows."""
    handler = functools.partial(Quiet, directory=str(channels_root))
    server = QuietServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "leaf.pem", certificates / "leaf.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server) as port:
        yield f"https://127.0.0.1:{port}/train"
