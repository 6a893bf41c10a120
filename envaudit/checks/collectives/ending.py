"""Who is at fault when a run does not come to its end: a pure function of what was seen of each rank.

The rule is *silent = culprit, loud = victim*: whoever waits for a dead peer soon complains, and whoever
is dead does not. So causes are looked for in this order: a process that ended, an exception that is the
rank's own, a heartbeat that stopped, the rank that entered fewest collectives, and, where all have
entered and none comes out, the network.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

DONE = "done"
MISMATCH = "mismatch"
MISSING = "missing"
UNREACHABLE = "unreachable"
LOST = "lost"
EXIT = "exit"
SILENT = "silent"
STUCK = "stuck"
ERROR = "error"
NETWORK = "network"
DEADLINE = "deadline"
HUB_LOST = "hub_lost"
NOT_TESTED = "not_tested"

# Before its first collective a rank is at one of these steps instead of a count.
STARTING = -2
IMPORTED = -1
READY = 0

# What a rank says that has no torch (`rank.py`). Where all say so there is nothing to test.
NO_TORCH = "torch is not installed there"

# What a rank says whose backend takes other calls than the first rank's (`abilities.py`).
OTHER_CALLS = "takes other calls than rank 0's"

# How long after the first loud sign others are waited for: which of two ranks died first is told by what
# arrives within this time, not by what arrives first.
SETTLE_S = 0.5

# What a rank says whose peer is gone: gloo (transport/tcp), the store, NCCL (ncclRemoteError and what its
# watchdog prints), and the kernel's words for them.
_OF_PEER = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection refused|connectfullmesh|connection timed out"
    r"|no route to host|network is unreachable|connection was (?:likely )?closed|failed to recv|recvvalue"
    r"|recv, got \d|timed out|timeout|ncclremoteerror|remote process exited|socketimpl"
    r"|watchdog|nccl communicator was aborted",
    re.IGNORECASE,
)


class Sight(NamedTuple):
    """What was seen of one rank; times are of one monotonic clock, in seconds.

    Attributes:
        rank: its number.
        node: where it runs.
        entered: collectives begun; STARTING and IMPORTED before its process group exists.
        finished: collectives that returned.
        at: the collective it is in.
        heard_at: when its heartbeat was seen to move; 0.0 before the first.
        moved_at: when `entered` or `finished` was seen to change; its start before.
        exit: how its process ended before it was through and without a word of why; empty while it runs.
        aborted: its process ended by SIGABRT, as a library ends one whose peer is gone.
        error: the exception that ended its work, empty for none.
        through: it told everything it had to tell.
        lost: how its supervisor left; empty while that is there.
        supervisor_heard_at: when its supervisor was heard last.
        stderr: the end of what it complained of.
    """

    rank: int
    node: str
    entered: int = STARTING
    finished: int = 0
    at: str = ""
    heard_at: float = 0.0
    moved_at: float = 0.0
    exit: str = ""
    aborted: bool = False
    error: str = ""
    through: bool = False
    lost: str = ""
    supervisor_heard_at: float = 0.0
    stderr: str = ""


class Ending(NamedTuple):
    """How a run ended.

    Attributes:
        kind: one of the constants of this module.
        ranks: the culprits.
        nodes: where they are.
        victims: ranks that could not finish because of them.
        text: one line.
        stderr: the end of what the first culprit complained of.
    """

    kind: str
    ranks: Tuple[int, ...] = ()
    nodes: Tuple[str, ...] = ()
    victims: Tuple[int, ...] = ()
    text: str = ""
    stderr: str = ""

    def to_json(self) -> Dict[str, Any]:
        """Only strings, numbers and lists."""
        row = dict(self._asdict())
        return {**row, "ranks": list(self.ranks), "nodes": list(self.nodes), "victims": list(self.victims)}


class Stopped(Exception):
    """The run cannot go on.

    Attributes:
        ending: why.
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.text)
        self.ending = ending


class Times(NamedTuple):
    """How long what may last, in seconds."""

    start_s: float = 60.0
    stall_s: float = 10.0


def of_peer(text: str) -> bool:
    """Whether these are the words of a rank whose peer is gone, or does not answer."""
    return bool(_OF_PEER.search(text))


def judge(sights: Sequence[Sight], now: float, times: Times) -> Optional[Ending]:
    """The cause that can be named now; None while all is well, or while more may be told soon.

    Args:
        sights: of all ranks.
        now: by the clock of the sights.
        times: after which silence and standing still count.
    """
    found = (
        _ended(sights)
        or _own_exception(sights, now, times)
        or _silent(sights, now, times)
        or _standing(sights, now, times)
    )
    if found is None or found.kind == NOT_TESTED:
        return found
    return _with_victims(found, sights)


def loud(sights: Sequence[Sight]) -> bool:
    """Whether any rank has ended or complained, so that a cause is to be named after SETTLE_S."""
    return any(sight.exit or sight.error or sight.lost for sight in sights)


def all_through(sights: Sequence[Sight]) -> bool:
    """Whether every rank told everything."""
    return all(sight.through for sight in sights)


def _ended(sights: Sequence[Sight]) -> Optional[Ending]:
    lost = [sight for sight in sights if sight.lost]
    if lost:
        text = f"the supervisor of {ranks_text(lost)} is gone: {lost[0].lost}"
        return _ending(LOST, lost, text)
    ended = [sight for sight in sights if sight.exit]
    if not ended:
        return None
    # A library aborts a process whose peer is gone; that is loud, not dead. Where all that ended did so
    # for such a reason, somebody else is the cause.
    own = [each for each in ended if not (each.aborted and of_peer(each.stderr))]
    if not own:
        return None
    first = own[0]
    return _ending(EXIT, own, f"{first.exit} {_place(first)}")


def _own_exception(sights: Sequence[Sight], now: float, times: Times) -> Optional[Ending]:
    own = [sight for sight in sights if sight.error and not of_peer(sight.error)]
    if not own:
        return None
    if all(sight.error == NO_TORCH for sight in own):
        if len(own) == len(sights):
            return _ending(NOT_TESTED, own, NO_TORCH)._replace(ranks=())
        open_still = [sight for sight in sights if sight not in own and sight.entered == STARTING]
        if any(now - sight.moved_at <= times.start_s for sight in open_still):
            # Whether torch is there is soon known of all, and decides whose lack it is.
            return None
    if 2 * sum(OTHER_CALLS in sight.error for sight in own) > len(sights) > 2:
        # Each of them was held against the first: most of them are not odd.
        return _ending(ERROR, sights[:1], f"its backend takes other calls than {ranks_text(own)}'s")
    return _ending(ERROR, own, f"{own[0].error} {_place(own[0])}")


def _silent(sights: Sequence[Sight], now: float, times: Times) -> Optional[Ending]:
    left = [sight for sight in sights if not sight.through]
    unheard = [sight for sight in left if now - sight.supervisor_heard_at > times.stall_s]
    if unheard:
        text = f"the supervisor of {ranks_text(unheard)} was not heard for {times.stall_s:g} s"
        return _ending(SILENT, unheard, text)
    silent = [
        sight
        for sight in left
        if not (sight.error or sight.exit)
        and sight.heard_at
        and now - sight.heard_at > _patience(sight, times)
    ]
    if not silent:
        return None
    said_s = now - min(sight.heard_at for sight in silent)
    text = f"no sign of life for {said_s:.0f} s {_place(silent[0])}, its process is there"
    return _ending(SILENT, silent, text)


def _patience(sight: Sight, times: Times) -> float:
    """Loading libraries holds Python's lock for long: only then are heartbeats late for no fault."""
    return times.start_s if sight.entered < READY else times.stall_s


def _standing(sights: Sequence[Sight], now: float, times: Times) -> Optional[Ending]:
    """Nobody moves: who is behind the others, or the network between all that have entered."""
    left = [sight for sight in sights if not sight.through]
    if not left:
        return None
    complaining = [sight for sight in left if sight.error or sight.exit]
    # One that is still at its start is given the start's time, for others wait for it without moving.
    patience = max(_patience(sight, times) for sight in left)
    last_moved = max(sight.moved_at for sight in sights)
    everybody = len(complaining) == len(left)
    if not everybody and now - last_moved <= patience:
        return None
    waiting = [sight for sight in left if sight not in complaining]
    lowest = min(sight.entered for sight in waiting or left)
    highest = max(sight.entered for sight in sights)
    behind = [sight for sight in waiting if sight.entered == lowest]
    if waiting and (lowest < highest or lowest == STARTING):
        return _ending(STUCK, behind, _behind_text(behind, lowest, highest))
    # Out of the one and not in the next: its own program does not go on.
    between = [sight for sight in waiting if READY <= sight.entered <= sight.finished]
    if len(between) == len(sights):
        # Nobody is behind anybody: data of the size that was asked for may take so long to make.
        text = f"no rank went on between two collectives for {patience:g} s; all heartbeats are alive"
        return Ending(DEADLINE, text=text)
    if between:
        text = f"not gone on after {between[0].at or 'its last collective'}, its heartbeat is alive"
        return _ending(STUCK, between, text)
    return _network(left, complaining, lowest)


def _network(left: Sequence[Sight], complaining: Sequence[Sight], lowest: int) -> Ending:
    where = "while the process group was made" if lowest < READY else f"in {left[0].at or 'one collective'}"
    said = ""
    if complaining:
        said = f"; rank {complaining[0].rank} says: {complaining[0].error or complaining[0].exit}"
    text = f"all ranks were {where} and it did not come to its end{said}"
    return Ending(NETWORK, (), (), (), text, left[0].stderr)


def _behind_text(behind: Sequence[Sight], lowest: int, highest: int) -> str:
    if lowest == STARTING:
        return f"{ranks_text(behind)} did not get as far as having torch imported"
    if lowest == IMPORTED:
        return f"{ranks_text(behind)} did not join the process group that others are in"
    at = f", last in {behind[0].at}" if behind[0].at else ""
    return f"entered {lowest} collectives where others entered {highest}{at}; the heartbeat is alive"


def _place(sight: Sight) -> str:
    if sight.entered < READY:
        return "before the process group was made"
    return f"in {sight.at}" if sight.at else "as its collectives began"


def _ending(kind: str, culprits: Sequence[Sight], text: str) -> Ending:
    ranks = tuple(sight.rank for sight in culprits)
    nodes = tuple(dict.fromkeys(sight.node for sight in culprits))
    stderr = next((sight.stderr for sight in culprits if sight.stderr), "")
    return Ending(kind, ranks, nodes, (), text, stderr)


def _with_victims(ending: Ending, sights: Sequence[Sight]) -> Ending:
    victims = tuple(s.rank for s in sights if not s.through and s.rank not in ending.ranks)
    return ending._replace(victims=victims)


def ranks_text(sights: Sequence[Sight]) -> str:
    """`rank 3`, or `ranks 3, 4, 5`; long lists are cut."""
    ranks = [str(sight.rank) for sight in sights]
    shown = ", ".join(ranks[:8]) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def members_text(there: Mapping[int, str], count: int, names: Sequence[str] = ()) -> str:
    """Who came to the hub and who did not, by node where the node is known, else by its number."""
    nodes = list(dict.fromkeys(there[index] for index in sorted(there)))
    absent = (each for each in range(count) if each not in there)
    # A node with several processes is told once.
    lacking = list(dict.fromkeys(names[each] if each < len(names) else str(each) for each in absent))
    return f"{len(there)} of {count} came to the hub ({_cut(nodes)}); missing: {_cut(lacking)}"


def _cut(words: Sequence[str]) -> str:
    return ", ".join(words[:16]) + (f" and {len(words) - 16} more" if len(words) > 16 else "")
