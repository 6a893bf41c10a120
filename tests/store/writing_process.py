"""A process that writes snapshots, to be run beside another one or killed.

Arguments: the store's path, the first value, how many (0: until it is killed), and a tag that is
set for node01 (or nothing). Each name is printed once it is kept.
"""

from __future__ import annotations

import itertools
import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
    from envaudit.store import Store
    from tests.store.snapshots import keep

    path, start, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tags = sys.argv[4:]
    values = range(start, start + count) if count else itertools.count(start)
    for value in values:
        sys.stdout.write(keep(Store(path), value, nodes=["node01"], tags=tags) + "\n")
        sys.stdout.flush()
