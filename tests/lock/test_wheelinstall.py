"""What becomes of the scripts that uv has written."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from pathlib import Path

from envaudit.lock.wheelinstall import _move_scripts


def test_script_with_a_large_archive_behind_it_is_moved_whole(tmp_path: Path) -> None:
    """A program in a zip, of more than a mebibyte; its RECORD says what it is now."""
    fresh, site = tmp_path / "fresh", tmp_path / "fresh" / "lib" / "python3.12" / "site-packages"
    record = site / "tool-1.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("../../../bin/tool,sha256=old,1\n", encoding="utf-8")
    (fresh / "bin").mkdir()
    archive = b"PK" + bytes(3 << 20) + b"end"
    (fresh / "bin" / "tool").write_bytes(f"#!{fresh}/bin/python\n".encode() + archive)
    _move_scripts(str(fresh), "/envs/train")
    moved = (fresh / "bin" / "tool").read_bytes()
    assert b"#!/envs/train/bin/python\n" + archive == moved
    digest = urlsafe_b64encode(hashlib.sha256(moved).digest()).decode().rstrip("=")
    assert f"../../../bin/tool,sha256={digest},{len(moved)}\n" == record.read_text(encoding="utf-8")
