"""How a member fails to join its hub, or loses it."""

from __future__ import annotations

from typing import Dict

from envaudit.control import link
from envaudit.control.member import Refusals
from envaudit.errors import EXIT_INCOMPLETE, EnvauditError, UsageError

# What a hub's code means, in this side's own words.
REFUSALS = {
    link.VERSION: "it is of another version of envaudit",
    link.TOKEN: "it has another token",
    link.INDEX: "it expects fewer supervisors",
    link.TAKEN: "another supervisor has this number already",
    link.LATE: "it has begun without this supervisor",
    link.ENDED: "it has ended",
    link.PROTOCOL: "it did not understand this supervisor",
}


# Of those who were turned away so many are told.
_TOLD = 4


def turned_away(refused: Refusals) -> str:
    """Who came to a hub as a member does and was refused: `10.0.0.7 (another token)`; empty for nobody.

    Somebody who is missing may be among them. Who only knocked, such as a port scanner, is not told.
    """
    told: Dict[str, str] = {}
    for each in refused.last:
        if each.code != link.FOREIGN:
            host = each.address.rpartition(":")[0]
            told[host] = "another token" if each.code == link.TOKEN else each.why
    return ", ".join(f"{host} ({why})" for host, why in list(told.items())[-_TOLD:])


class HubUnreachable(EnvauditError):
    """No hub was found within the time."""

    exit_code = EXIT_INCOMPLETE
    meaning = "incomplete: the hub was not reached"


class HubPortTaken(HubUnreachable):
    """Something else than a hub has that port, and keeps it.

    The first supervisor, which cannot listen there, ends with the same code.
    """

    exit_code = UsageError.exit_code
    meaning = UsageError.meaning


class HubRefused(EnvauditError):
    """The hub does not take this member.

    Attributes:
        code: one of `envaudit.control.link`: version, token, index, taken, late,
            ended, protocol.
    """

    exit_code = EXIT_INCOMPLETE
    meaning = "incomplete: the hub refused"

    def __init__(self, code: str, where: str, next_step: str) -> None:
        super().__init__(
            "the hub refuses", where=where, why=REFUSALS.get(code, "no reason"), next_step=next_step
        )
        self.code = code


class HubLost(EnvauditError):
    """The connection to the hub is over, and not because this member said goodbye."""

    exit_code = EXIT_INCOMPLETE
    meaning = "incomplete: the hub was lost"
