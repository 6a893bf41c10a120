"""A process whose children kill themselves before their n-th call of the operating system.

Arguments: the store's path and what to do: `write`, `retag` or `prune`. For each line `n` of
standard input a child does it, and a line says how the child ended: `0` when it had fewer than n
calls, otherwise `-9`, as `kill -9` or the out-of-memory killer would end it between two steps.
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
    from envaudit.store import Store
    from tests.store.snapshots import keep

    store, action = Store(sys.argv[1]), sys.argv[2]
    calls, fatal = 0, 0

    def count(frame: object, event: str, called: object) -> None:
        """Count calls of functions that Python has from the operating system."""
        global calls
        if event == "c_call" and getattr(called, "__module__", "") in ("posix", "_io"):
            calls += 1
            if calls == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    def act() -> None:
        """Do it once, to the end or to the fatal call."""
        names = [entry.name for entry in store.entries()]
        sys.setprofile(count)
        if action == "write":
            keep(store, fatal, at="2026-11-30T12:00:00Z", tags=["good"])
        elif action == "retag":
            store.tag("good", "node01", names[-1])
        else:
            store.prune(1)
        sys.setprofile(None)

    for line in sys.stdin:
        fatal = int(line)
        child = os.fork()
        if not child:
            act()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
