"""The user's network as the conda settings describe it: certificates, proxies, stored passwords."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envaudit.errors import NeededError
from envaudit.lock import solve
from envaudit.lock.condarc import Settings
from envaudit.lock.solve import start_solving
from envaudit.lock.spec import channels_for, spec_of
from envaudit.lock.virtual import virtual_packages
from tests.lock.channel import WAIT, served
from tests.lock.network import Quiet, QuietServer, serving


def _count(name: str, settings: Settings, folder: Path) -> int:
    specs = [spec_of("numpy")]
    channels, _ = channels_for([name], specs, settings)
    wanted = {"linux-64": specs}
    with start_solving(wanted, channels, settings, virtual_packages(), cache_dir=str(folder)) as solving:
        return len(solving.result().records["linux-64"])


def test_channel_with_an_unknown_certificate_is_refused(https_channel: str, tmp_path: Path) -> None:
    """By default nobody is trusted who is not in the system's list."""
    with pytest.raises(NeededError, match="its certificate is not trusted"):
        _count(https_channel, Settings(remote_max_retries=0), tmp_path)


@pytest.mark.parametrize("how", ["bundle", "off"])
def test_channel_with_the_users_certificates_is_read(
    https_channel: str, certificates: Path, tmp_path: Path, how: str
) -> None:
    """`ssl_verify` as a file, and `ssl_verify: false` for those who must."""
    settings = Settings(ssl_verify=str(certificates / "ca.pem") if how == "bundle" else False)
    assert _count(https_channel, settings, tmp_path) > 1


def test_channel_behind_a_proxy_is_read_through_it(channels_root: Path, tmp_path: Path) -> None:
    """A name that only the proxy can reach."""
    asked = []

    class Proxy(Quiet):
        def translate_path(self, path: str) -> str:
            asked.append(path)
            return str(channels_root) + path.removeprefix("http://conda.invalid")

    server = QuietServer(("127.0.0.1", 0), Proxy)
    with serving(server) as port:
        settings = Settings(proxy_servers={"http": f"http://127.0.0.1:{port}"}, remote_max_retries=0)
        assert _count("http://conda.invalid/train", settings, tmp_path) > 1
    assert all(path.startswith("http://conda.invalid/train/") for path in asked)
    assert asked


@pytest.mark.parametrize("place", ["netrc", "store"])
def test_channel_with_a_stored_password_is_read(
    channels_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A netrc file, and what `rattler auth login` writes where there is no keyring."""
    if place == "netrc":
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password pw\n")
        (tmp_path / "netrc").chmod(0o600)
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    else:
        stored = {"127.0.0.1": {"BasicHTTP": {"username": "me", "password": "pw"}}}
        (tmp_path / "auth.json").write_text(json.dumps(stored))
        monkeypatch.setenv("RATTLER_AUTH_FILE", str(tmp_path / "auth.json"))
    with served(channels_root, password="me:pw") as server:
        assert _count(f"{server.url}/train", Settings(remote_max_retries=0), tmp_path / "cache") > 1


def test_mirror_that_never_answers_is_passed_over(
    channels_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, not once for each time that the client would try it again."""
    impatient = solve._BOOT.replace(
        "from envaudit.lock.child import main", "from envaudit.lock import child; child._TIMEOUT_S = 1"
    )
    monkeypatch.setattr(solve, "_BOOT", impatient.replace("main()", "child.main()"))
    with served(channels_root, {"repodata_shards.msgpack.zst": WAIT, "repodata.json": WAIT}) as server:
        stuck, url = f"{server.url}/train", (channels_root / "train").as_uri()
        settings = Settings(mirrored_channels={"train": (stuck, url)}, remote_max_retries=3)
        assert _count("train", settings, tmp_path / "cache") > 1
        with pytest.raises(NeededError, match=r"cannot be reached \(timed out: no whole index in 1 s\)"):
            _count(stuck, Settings(remote_max_retries=3), tmp_path / "cache")
        server.faults.clear()
