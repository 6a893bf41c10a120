"""A user with a folder, conda settings and a cache of their own, and no conda on PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cli.conftest import Ended
from tests.lock.channel import conda_free_path


class Workplace:
    """Where commands run; `folder` is their working directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.condarc = folder / "condarc"
        self.environment = {
            **{name: os.environ[name] for name in ("LANG",) if name in os.environ},
            "PATH": conda_free_path(),
            "HOME": str(folder / "home"),
            "CONDARC": str(self.condarc),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def mirror(self, channels: Mapping[str, str], **settings: Any) -> None:
        """Write conda settings that send each channel to another address."""
        document = {
            "mirrored_channels": {channel: [url] for channel, url in channels.items()},
            "remote_max_retries": 0,
            **settings,
        }
        self.condarc.write_text(json.dumps(document), "utf-8")

    def argv(self, words: Sequence[str]) -> list[str]:
        """The command as a process."""
        return [sys.executable, "-m", "envaudit", *words]

    def run(self, *words: str) -> Ended:
        """Run `envaudit` and wait for it."""
        ran = subprocess.run(
            self.argv(words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        return Ended(ran.returncode, ran.stdout, ran.stderr)


def leftovers(folder: Path) -> list[str]:
    """What an install has left beside a prefix."""
    return sorted(path.name for path in folder.iterdir() if ".envaudit-" in path.name)


def tree_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
