"""A section: one subject's facts on one node, and what kept them from being whole."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Dict, Tuple

from envaudit.model.canonical import Fact, digest_of

STATUSES = ("ok", "partial", "absent", "error")


@dataclass(frozen=True)
class Section:
    """One subject of a fingerprint, such as `gpu` or `packages`.

    `status` says what the facts are worth:

    - `ok`: everything that applies to this node was read;
    - `partial`: some facts that apply could not be read, `errors` says which and why; a fact
      that is not there is unknown, not missing;
    - `absent`: the subject does not exist on this node (no conda, no GPU), and that was seen;
    - `error`: nothing could be read; every fact is unknown.

    `facts` are hashed and compared. `notes` (serials, temperatures, free space) are kept and
    shown, never hashed, never drift. Units stand in the keys.

    `whole` names maps among the facts of a `partial` section that were read to the end all the
    same: a list of every package says nothing of the interpreter, but what it does not list is
    absent. A null in such a map is unknown, as elsewhere.
    """

    name: str
    schema: int
    status: str
    facts: Dict[str, Fact] = field(default_factory=dict)
    notes: Dict[str, Fact] = field(default_factory=dict)
    errors: Tuple[str, ...] = ()
    whole: Tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical JSON of [name, schema, status, facts], and of `whole` if there is any."""
        more = [sorted(self.whole)] if self.whole else []
        return digest_of([self.name, self.schema, self.status, self.facts, *more])

    def with_details(self, notes: Dict[str, Fact], errors: Tuple[str, ...]) -> Section:
        """The same facts with other notes and errors; the facts are not hashed a second time."""
        section = replace(self, notes=notes, errors=errors)
        # Where cached_property keeps it: `digest` does not depend on what was replaced.
        section.__dict__["digest"] = self.digest
        return section
