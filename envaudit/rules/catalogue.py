"""How facts are compared that no rule of their own speaks of, and how much they matter.

A difference that stands here is told by EA299 at the severity given here; one that stands nowhere
is a warning. The document of facts, docs/facts.md, is generated from this table and from the rules
that speak of differences.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, NamedTuple, Optional, Sequence

from envaudit.model.canonical import Fact as Value
from envaudit.model.canonical import canonical_json
from envaudit.model.drift import Drift, Group
from envaudit.model.pathpattern import PathPattern, patterns_of

EXACTLY = "exactly"
AS_A_SET = "as a set"
WITHIN = "within a tolerance"
NOT_AT_ALL = "not at all"

# What a difference is that stands nowhere.
UNKNOWN_SEVERITY = "warning"


class Entry(NamedTuple):
    """How the facts below one path are compared.

    Attributes:
        path: a pattern; the first entry that matches decides.
        compared: one of the words above.
        severity: of a difference.
        why: what a difference does, or why there is none to tell.
        tolerance_percent: with `WITHIN`, how far the smallest and the largest value may be apart.
    """

    path: str
    compared: str
    severity: str
    why: str
    tolerance_percent: int = 0


_OF_EACH = "Told of each node that has it, whatever the others have."

ENTRIES: Sequence[Entry] = (
    Entry("integrity/**", NOT_AT_ALL, "info", _OF_EACH),
    Entry("collectives/**", NOT_AT_ALL, "info", "Told once of the run that all nodes took part in."),
    Entry("git/commit", EXACTLY, "error", "Ranks that run other code compute other numbers."),
    Entry("git/dirty", EXACTLY, "warning", "Somebody changed the code on these nodes alone."),
    Entry("git/**", EXACTLY, "warning", "The repository is in another state."),
    Entry("host/architecture", EXACTLY, "error", "No binary of one runs on the other."),
    Entry("host/kernel", EXACTLY, "warning", "Other drivers, schedulers and limits."),
    Entry("host/distribution/**", EXACTLY, "warning", "Other system libraries."),
    Entry("host/clocksource", EXACTLY, "warning", "Reading the time costs a hundred times more on some."),
    Entry("host/**", EXACTLY, "warning", "The machine is set up in another way."),
    Entry("limits/seccomp", EXACTLY, "info", "Some calls are refused there, as one to bind memory may be."),
    Entry("limits/cap_sys_nice", EXACTLY, "info", "Where it is missing, priorities can only be lowered."),
    Entry("limits/dev_shm_gib", WITHIN, "warning", "Ranks share data there; it follows the memory.", 2),
    Entry("limits/**", EXACTLY, "warning", "The work gets processors or memory in another way."),
    Entry("clock/service", NOT_AT_ALL, "info", "Several services keep the time as well as one."),
    Entry("clock/synchronised", NOT_AT_ALL, "info", _OF_EACH),
    Entry("clock/leap", NOT_AT_ALL, "info", "It follows from whether the clock is synchronised."),
    Entry("clock/**", EXACTLY, "warning", "The time is kept in another way."),
    Entry("storage/shm/access", NOT_AT_ALL, "info", _OF_EACH),
    Entry("storage/tmp/access", NOT_AT_ALL, "info", _OF_EACH),
    Entry("network/**", EXACTLY, "warning", "Ranks reach each other in another way."),
    Entry("topology/acs/**", EXACTLY, "warning", "GPUs and NICs reach each other through the host on some."),
    Entry("topology/**", EXACTLY, "warning", "GPUs and NICs reach each other in another way."),
    Entry("env/variables/CONDA_*", EXACTLY, "info", "Where conda was activated; packages are compared."),
    Entry("env/variables/LANG", EXACTLY, "info", "Sorting and messages; encodings are compared."),
    Entry("env/variables/LC_ALL", EXACTLY, "info", "Sorting and messages; encodings are compared."),
    Entry("env/**", EXACTLY, "warning", "What is started there is told otherwise."),
    Entry("gpu/inventory/**", NOT_AT_ALL, "info", _OF_EACH),
    Entry("gpu/module", NOT_AT_ALL, "info", _OF_EACH),
    Entry("gpu/nvml", NOT_AT_ALL, "info", _OF_EACH),
    Entry("gpu/uvm", NOT_AT_ALL, "info", _OF_EACH),
    Entry("gpu/fabric_manager/switches", EXACTLY, "warning", "A switch is missing, or its driver."),
    Entry("gpu/fabric_manager/**", NOT_AT_ALL, "info", _OF_EACH),
    Entry("gpu/**", EXACTLY, "warning", "The GPUs, or their driver, are set up in another way."),
    Entry("cuda/libcuda/**", EXACTLY, "warning", "The driver's library is taken from elsewhere."),
    Entry("cuda/compat", EXACTLY, "warning", "The driver's library is taken from elsewhere."),
    Entry("cuda/**", EXACTLY, "info", "It is used when an extension is built; torch brings its own."),
    Entry("deep/available", EXACTLY, "error", "Ranks have no GPU on some of them."),
    Entry("deep/**", NOT_AT_ALL, "info", _OF_EACH),
    Entry("python/encodings/**", EXACTLY, "warning", "Text is read and written there in another encoding."),
    Entry("python/user_site/**", EXACTLY, "info", "What is imported from there is compared as packages."),
    Entry("conda/pinned", AS_A_SET, "warning", "The next install chooses other versions."),
)

_PATTERNS: List[PathPattern] = []
_KNOWN: Dict[str, Optional[Entry]] = {}


def entry_of(path: str) -> Optional[Entry]:
    """The entry that decides about a path, None where it stands nowhere."""
    if path not in _KNOWN:
        if not _PATTERNS:
            _PATTERNS.extend(patterns_of((entry.path for entry in ENTRIES), "the catalogue"))
        _KNOWN[path] = next(
            (entry for entry, pattern in zip(ENTRIES, _PATTERNS) if pattern.matches(path)), None
        )
    return _KNOWN[path]


def severity_of(path: str) -> str:
    """What a difference at a path is, where no rule of its own speaks of it."""
    entry = entry_of(path)
    return UNKNOWN_SEVERITY if entry is None else entry.severity


def is_alike(drift: Drift) -> bool:
    """Whether the values that differ are still alike in the way in which they are compared."""
    entry = entry_of(drift.path)
    if entry is None or entry.compared == EXACTLY:
        return False
    if entry.compared == NOT_AT_ALL:
        return True
    known = [group for group in drift.groups if group.state != "unknown"]
    values: List[Value] = [group.value for group in known]
    if any(group.state == "absent" for group in known):
        return False
    if entry.compared == AS_A_SET:
        lists = [value for value in values if isinstance(value, list)]
        return len(lists) == len(values) and len({_as_set(value) for value in lists}) == 1
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) < len(values) or min(numbers) < 0:
        return False
    return _is_within(entry, min(numbers), max(numbers))


def with_alike_as_one(drift: Drift) -> Drift:
    """A difference with the nodes that are alike within a tolerance as one group: what is well is no outlier.

    They are those around the reference; where there is none around the median, if they are most.
    """
    entry = entry_of(drift.path)
    if entry is None or entry.compared != WITHIN:
        return drift
    known = [group for group in drift.groups if group.state != "unknown"]
    numbers = [(group.value, group) for group in known if type(group.value) is int]
    values = sorted(value for value, group in numbers for _ in group.nodes)
    middle = drift.groups[0].value if drift.reference else values[(len(values) - 1) // 2] if values else None
    if type(middle) is not int:
        return drift
    alike = [group for value, group in numbers if _is_within(entry, *sorted((value, middle)))]
    nodes = tuple(node for group in alike for node in group.nodes)
    count = sum(len(group.nodes) for group in known)
    if not drift.reference and 2 * len(nodes) <= count:
        return drift
    return replace(
        drift,
        groups=(Group(middle, nodes), *(group for group in drift.groups if group not in alike)),
        reference=nodes,
        basis=drift.basis if drift.reference else f"majority {len(nodes)}/{count}",
    )


def _is_within(entry: Entry, smallest: int, largest: int) -> bool:
    return 100 * (largest - smallest) <= entry.tolerance_percent * largest


def _as_set(value: List[Value]) -> str:
    return canonical_json(sorted(canonical_json(item) for item in value))
