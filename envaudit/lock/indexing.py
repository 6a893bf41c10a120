"""Writes the index of local channels, in a process of its own (see `envaudit.lock.linking`)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def main() -> None:
    """Index the folders that one line on standard input names; never returns."""
    job = json.loads(sys.stdin.readline())
    try:
        asyncio.run(_index(job["folders"]))
        answer: dict[str, object] = {"done": len(job["folders"])}
    except BaseException as error:
        answer = {"fault": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)


async def _index(folders: Sequence[str]) -> None:
    from rattler.index import index_fs

    for folder in folders:
        await index_fs(Path(folder), write_zst=False, write_shards=False, force=True)
        # Where rattler wrote before it renamed.
        shutil.rmtree(Path(folder, ".tmp"), ignore_errors=True)


if __name__ == "__main__":
    main()
