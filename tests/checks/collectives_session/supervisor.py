"""One supervisor as a process of its own: reads from the file named what it is, prints the result."""

import json
import os
import sys
import time

from envaudit.checks.collectives import session
from envaudit.checks.collectives.items import CollectivePlan
from envaudit.checks.supervise import Started
from envaudit.control.seat import Seat


def main():
    """`seat`, `layout`, `plan`, `facts`, `limits`, `environ`, `interpreter`, `before_s`, as `run` has."""
    with open(sys.argv[1], encoding="utf-8") as file:
        asked = json.load(file)
    environ = {**os.environ, "OMP_NUM_THREADS": "1", **asked.get("environ", {})}
    before_s = asked.get("before_s", 0)
    result = session.run(
        Seat(*asked["seat"]),
        session.Layout(**asked.get("layout", {})),
        CollectivePlan.from_json(asked.get("plan", {})),
        asked.get("facts", {}),
        Started(asked.get("interpreter", sys.executable), environ, "/"),
        session.Limits(**asked.get("limits", {})),
        b"",
        (lambda: time.sleep(before_s)) if before_s else None,
        before_s + 1 if before_s else 0.0,
    )
    print(json.dumps(result))


main()
