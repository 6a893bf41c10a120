"""Packages through the user's network: passwords, tokens, certificates, proxies."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from envaudit.errors import InputError, NeededError
from envaudit.lock import fetch, opener
from tests.lock.channel import WAIT, LocalChannel, served
from tests.lock.locks import BASE, SMALL, lock_entry, small_lock, write_lock
from tests.lock.network import Quiet, QuietServer, serving
from tests.lock.workplace import Workplace

WORDS = ("install", "train.conda-lock.yml", "--prefix", "env")


@pytest.fixture
def place(workplace: Workplace, train_channel: LocalChannel) -> Workplace:
    """A workplace with a lock of twelve packages."""
    small_lock(workplace.folder / "train.conda-lock.yml", train_channel)
    return workplace


@pytest.mark.parametrize("kept", ["condarc", "netrc", "basic", "token", "nowhere"])
def test_install_finds_the_user_s_credentials_and_prints_none(
    place: Workplace, channels_root: Path, kept: str
) -> None:
    """In the address of the mirror, in netrc, in rattler's file; without them the answer is 401."""
    token = "tok-en" if kept == "token" else ""
    with served(channels_root, password="" if token else "ann:se-cret", token=token) as server:
        url = f"{server.url}/train"
        host = url.partition("://")[2].partition(":")[0]
        if kept == "condarc":
            url = url.replace("://", "://ann:se-cret@")
        elif kept == "netrc":
            path = place.folder / "netrc"
            path.write_text(f"machine {host} login ann password se-cret\n")
            path.chmod(0o600)
            place.environment["NETRC"] = str(path)
        elif kept in ("basic", "token"):
            basic = {"BasicHTTP": {"username": "ann", "password": "se-cret"}}
            path = place.folder / "auth.json"
            path.write_text(json.dumps({host: {"CondaToken": token} if token else basic}))
            place.environment["RATTLER_AUTH_FILE"] = str(path)
        place.mirror({BASE: url})
        ended = place.run(*WORDS)
    assert (5 if kept == "nowhere" else 0) == ended.code, ended.err
    assert "se-cret" not in ended.err + ended.out
    assert ("HTTP 401" in ended.err) == (kept == "nowhere")
    if kept != "nowhere":
        records = "".join(path.read_text() for path in (place.folder / "env/conda-meta").glob("*.json"))
        assert "se-cret" not in records
        assert "tok-en" not in records


class _Endless(Quiet):
    """Sends a package without an end, or one that is said to be far from it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Until the client hangs up."""
        self.send_response(200)
        chunk = b"\0" * (1 << 16)
        if "said" in self.path:
            self.send_header("Content-Length", "9" * 15)
        else:
            self.send_header("Transfer-Encoding", "chunked")
            chunk = b"10000\r\n" + chunk + b"\r\n"
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(chunk)


@pytest.mark.parametrize("folder", ["endless", "said"])
def test_fetch_of_an_answer_that_no_package_has_the_size_of_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """Its hash would be known once the disk is full."""
    if folder == "endless":
        monkeypatch.setattr(fetch, "_MAX_BYTES", 1 << 22)
    with serving(QuietServer(("127.0.0.1", 0), _Endless)) as port:
        url = f"http://127.0.0.1:{port}/{folder}/a-1-0.conda"
        file = fetch.Wanted("a-1-0.conda", (url,), "0" * 64, None)
        with pytest.raises(InputError, match="what comes has more than"):
            fetch.fetch_all([file], str(tmp_path), opener=opener.Opener())
    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


def test_fetch_that_failed_tries_no_other_file_again(
    channels_root: Path, train_channel: LocalChannel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that hangs would keep the run for as many minutes as it has tries."""
    monkeypatch.setattr(opener, "TIMEOUT_S", 2.0)
    names = [f"{path.parent.name}/{path.name}" for path in sorted(train_channel.folder.glob("*/python-3*"))]
    with served(channels_root, dict.fromkeys(names, WAIT)) as server:
        urls = [f"{server.url}/train/{name}" for name in (*names, "linux-64/gone-1-0.conda")]
        files = [fetch.Wanted(url.rpartition("/")[2], (url,), "0" * 64, None) for url in urls]
        with pytest.raises(NeededError, match=r"gone-1-0[.]conda cannot be fetched"):
            fetch.fetch_all(files, str(tmp_path), opener=opener.Opener(attempts=3))
        server.faults.clear()
    assert sorted(url.removeprefix(server.url) for url in urls) == sorted(server.requests)


@pytest.mark.parametrize(
    ("variable", "data"),
    [("NETRC", b"machine h login ann password \xe4\n"), ("RATTLER_AUTH_FILE", b"[" * 100_000)],
    ids=["netrc of another encoding", "file that nests"],
)
def test_install_passes_over_a_file_of_credentials_that_cannot_be_read(
    place: Workplace, channels_root: Path, variable: str, data: bytes
) -> None:
    """A channel that is open to all needs none."""
    path = place.folder / "kept"
    path.write_bytes(data)
    path.chmod(0o600)
    place.environment[variable] = str(path)
    with served(channels_root) as server:
        place.mirror({BASE: f"{server.url}/train"})
        ended = place.run(*WORDS)
    assert (0, "") == (ended.code, ended.err)


def test_install_that_fails_at_a_mirror_with_a_password_does_not_print_it(
    place: Workplace, channels_root: Path
) -> None:
    """Nor the token of its path."""
    with served(channels_root, {".conda": "404"}, token="tok-en") as server:
        place.mirror({BASE: server.url.replace("://", "://ann:se-cret@") + "/t/tok-en/train"})
        ended = place.run(*WORDS)
    assert (5, True) == (ended.code, "HTTP 404" in ended.err)
    assert "se-cret" not in ended.err
    assert "tok-en" not in ended.err


@pytest.mark.parametrize("named", ["nowhere", "option", "condarc"])
@pytest.mark.parametrize(
    "pattern", ["http://{}/t/${{SERVICE_TOKEN}}/train", "http://ann:$SERVICE_TOKEN@{}/train"]
)
def test_install_sends_a_variable_only_to_whom_the_user_named(
    workplace: Workplace, train_channel: LocalChannel, channels_root: Path, pattern: str, named: str
) -> None:
    """A lock comes with a repository: its author must not be sent a secret of whoever installs it."""
    credential = {"token": "tok-en"} if "/t/" in pattern else {"password": "ann:tok-en"}
    with served(channels_root, **credential) as server:
        channel = pattern.format(server.url.partition("://")[2])
        entries = [lock_entry(train_channel, package, base=channel) for package in SMALL]
        write_lock(workplace.folder / "train.conda-lock.yml", entries, channels=(channel,))
        workplace.environment["SERVICE_TOKEN"] = "tok-en"
        workplace.mirror({}, custom_channels={"other": server.url} if named == "condarc" else {})
        ended = workplace.run(*WORDS, *(["--variable", "SERVICE_TOKEN"] if named == "option" else []))
    if named == "nowhere":
        assert 2 == ended.code, ended.err
        assert "would send the variable SERVICE_TOKEN to a host" in ended.err
        assert "--variable SERVICE_TOKEN" in ended.err
        assert [] == server.requests
    else:
        assert 0 == ended.code, ended.err
    assert "tok-en" not in ended.err


def test_install_names_all_variables_that_a_host_would_be_sent(
    workplace: Workplace, train_channel: LocalChannel
) -> None:
    """At once, and beside a channel of the settings that is no address."""
    channel = "http://${SERVICE_USER}:${SERVICE_TOKEN}@127.0.0.1:9/train"
    entries = [lock_entry(train_channel, package, base=channel) for package in SMALL]
    write_lock(workplace.folder / "train.conda-lock.yml", entries, channels=(channel,))
    workplace.environment.update(SERVICE_USER="ann", SERVICE_TOKEN="tok-en")
    workplace.mirror({}, custom_channels={"broken": "https://[broken"})
    ended = workplace.run(*WORDS)
    assert 2 == ended.code, ended.err
    assert "variables SERVICE_USER and SERVICE_TOKEN to a host" in ended.err
    assert "--variable SERVICE_USER --variable SERVICE_TOKEN" in ended.err


@pytest.mark.parametrize(("verify", "code"), [("bundle", 0), (False, 0), (True, 5), ("/nowhere.pem", 5)])
def test_install_trusts_whom_the_settings_trust(
    place: Workplace, https_channel: str, certificates: Path, verify: object, code: int
) -> None:
    """A bundle of the user's own, nobody asked, the system's list, and a bundle that is not there."""
    ssl_verify = str(certificates / "ca.pem") if verify == "bundle" else verify
    place.mirror({BASE: https_channel}, ssl_verify=ssl_verify)
    ended = place.run(*WORDS)
    assert code == ended.code, ended.err
    assert "Traceback" not in ended.err


def test_install_goes_through_the_proxy_of_the_settings(place: Workplace, channels_root: Path) -> None:
    """A name that only the proxy can reach."""
    asked = []

    class Proxy(Quiet):
        def translate_path(self, path: str) -> str:
            asked.append(path)
            return str(channels_root) + path.removeprefix("http://conda.invalid")

    with serving(QuietServer(("127.0.0.1", 0), Proxy)) as port:
        place.mirror({BASE: "http://conda.invalid/train"}, proxy_servers={"http": f"http://127.0.0.1:{port}"})
        ended = place.run(*WORDS)
    assert 0 == ended.code, ended.err
    assert 12 == len(asked)


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 404 \x1b]0;owned\x07\r\nContent-Length: 0\r\n\r\n", b"\x1b[2J owned\r\n"],
    ids=["reason", "no http"],
)
def test_words_of_a_server_reach_the_terminal_in_one_line_without_controls(
    place: Workplace, answer: bytes
) -> None:
    """A mirror is not trusted with the user's screen."""

    class Rude(Quiet):
        def do_GET(self) -> None:
            self.wfile.write(answer)

    with serving(QuietServer(("127.0.0.1", 0), Rude)) as port:
        place.mirror({BASE: f"http://127.0.0.1:{port}/train"})
        ended = place.run(*WORDS)
    assert (5, True, True) == (ended.code, "\\x1b" in ended.err, "owned" in ended.err), ended.err
    assert [True] == [line.isprintable() for line in ended.err.splitlines()]
