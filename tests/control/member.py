"""A process of the tests: `python member.py hub PORT COUNT` or `member PORT INDEX [CLOCK_NS]`.

The token comes in the environment. Each line on standard output is JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from envaudit.control.client import HubLost, connect
from envaudit.control.hub import Hub, listen
from envaudit.control.tokens import token_of


def say(**told: Any) -> None:
    """One line."""
    print(json.dumps(told), flush=True)


def hub(port: int, count: int) -> None:
    """Echo what each says to all, until all have left."""
    listener = listen("127.0.0.1", port)
    say(port=listener.getsockname()[1])
    running = Hub(listener, count, token_of(os.environ))
    say(missing=running.join(30), python=sys.version_info[:2])
    while not all(member.left for member in running.members.values()):
        for event in running.poll(0.1):
            say(index=event.index, kind=event.kind, body=event.body)
            if event.kind:
                running.broadcast(event.kind, event.body)
    running.close()


def member(port: int, index: int, clock_ns: int = 0) -> None:
    """Say one thing, then what it hears; a clock may be shifted as a whole."""
    now_ns = time.time_ns
    time.time_ns = lambda: now_ns() + clock_ns
    with connect("127.0.0.1", port, token_of(os.environ), index, f"node{index}", {}, 30) as client:
        say(joined=index, python=sys.version_info[:2])
        client.silence_s = 3.0
        client.send("word", ["from", index])
        try:
            while True:
                for kind, body in client.poll(0.2):
                    say(kind=kind, body=body)
                    if kind == "end":
                        return
                client.beat()
        except HubLost as error:
            say(lost=str(error))


if __name__ == "__main__":
    {"hub": hub, "member": member}[sys.argv[1]](*map(int, sys.argv[2:]))
