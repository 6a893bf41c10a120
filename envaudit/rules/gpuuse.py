"""Whether a process of this launch can use the GPUs, and has them for itself."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

from envaudit.model.drift import split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.cards import (
    MIG_CASE,
    Card,
    by_value,
    cards,
    deviations,
    folded,
    is_linux,
    named,
    noted,
    path_of,
    usable,
    whole_number,
)
from envaudit.rules.nodefacts import by_nodes, claimed
from envaudit.rules.pernode import facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, Threshold, difference, rule, threshold

_GIB = 1 << 30
# By the first 15 letters of a name, as the kernel keeps it.
_MPS_SERVER = "nvidia-cuda-mps"
_DISPLAYS = ("Xorg", "Xwayland", "X", "gnome-shell", "kwin_x11", "kwin_wayland", "gdm-x-session")
_TOLD = 6


@rule(
    "EA320",
    severity="info",
    scope="node",
    needs=("gpu",),
    title="GPU is in use already",
    why="A launch finds less memory than it counts on, and shares the card's time: it fails, or is slow.",
    how_to_fix="Wait for the process, or end it if it was left behind; nvidia-smi shows it.",
)
def busy(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """An error where a job is to start now.

    The own process tree, the server of MPS, display contexts and GPUs that this launch does not use
    are no matter of the launch.
    """
    severity = "error" if evidence.gate else ""
    yield from folded(evidence, lambda fingerprint: _busy(fingerprint, severity))


def _busy(fingerprint: Fingerprint, severity: str) -> Iterator[Found]:
    taken: List[Card] = []
    lines: List[str] = []
    for card in usable(fingerprint):
        strangers = [process for process in _processes(card) if _is_stranger(process)]
        if strangers:
            taken.append(card)
            lines += [f"GPU {card.ordinal}: {_described(process)}" for process in strangers]
    if taken:
        more = (f"and {len(lines) - _TOLD} more processes",) if len(lines) > _TOLD else ()
        yield Found(
            f"{named(taken, cards(fingerprint))} {'is' if len(taken) == 1 else 'are'} in use already",
            path="gpu/devices",
            evidence=(*lines[:_TOLD], *more),
            severity=severity,
        )


def _processes(card: Card) -> List[Any]:
    processes = card.notes.get("processes")
    return [mapping(one) for one in processes] if isinstance(processes, list) else []


def _is_stranger(process: Any) -> bool:
    name, kind = str(process.get("name") or ""), process.get("kind")
    if process.get("own") or not process or kind == "graphics" or name.startswith(_MPS_SERVER):
        return False
    return not ("graphics" in str(kind) and name in _DISPLAYS)


def _described(process: Any) -> str:
    memory = whole_number(process.get("memory_bytes"))
    name, user = process.get("name") or "a process", process.get("user")
    of = f" of {user}" if user else ""
    size = f", {_gib(memory)}" if memory else ""
    return f"{name}{of}, pid {process.get('pid')}{size}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.1f} GiB"


@rule(
    "EA321",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="GPU memory is taken by nobody",
    why="Less is left than on the other cards: what fits there ends with 'out of memory' here.",
    how_to_fix="Look for processes of another container or user, or left over from a job that was killed; "
    "a reset of the GPU frees it.",
    thresholds={
        "hidden_bytes": Threshold(_GIB, "bytes", "beyond the driver's reserve and what processes have")
    },
)
def hidden_memory(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Memory in use that neither the driver's reserve nor a process that can be seen explains."""
    most = threshold("EA321", "hidden_bytes", policy)

    def judge(fingerprint: Fingerprint) -> Iterator[Found]:
        hiding = [card for card in usable(fingerprint) if _hidden(card) > most]
        if hiding and is_linux(fingerprint):
            lines = tuple(f"GPU {card.ordinal}: {_gib(_hidden(card))}" for card in hiding[:_TOLD])
            message = f"{named(hiding, cards(fingerprint))}: memory in use, and no process that has it"
            yield Found(message, path="gpu/devices", evidence=lines)

    yield from folded(evidence, judge)


def _hidden(card: Card) -> int:
    # Slices and address translation by the processor count memory otherwise, and so does a process
    # whose size is not told.
    if card.facts.get("mig") == "enabled" or card.facts.get("addressing") == "ats":
        return 0
    if any(not isinstance(process.get("memory_bytes"), int) for process in _processes(card)):
        return 0
    return whole_number(card.notes.get("memory_hidden_bytes"))


@difference(
    "EA322",
    severity="error",
    title="GPU compute mode differs",
    why="A GPU in an exclusive mode refuses the second process: a launch that works elsewhere fails here.",
    of=("gpu/each/compute_mode",),
    order=42,
    how_to_fix="Set it back: nvidia-smi -c DEFAULT, as root.",
)
def compute_mode_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Of most cards of a node."""
    yield claim.found("GPU compute mode differs")


@rule(
    "EA323",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="GPU compute mode is not the default",
    why="A GPU in an exclusive mode refuses the second process, also a data loader's or a profiler's.",
    how_to_fix="Set it back: nvidia-smi -c DEFAULT, as root; MPS alone asks for EXCLUSIVE_PROCESS.",
)
def compute_mode(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Also of a single card of the node."""
    told = told_between_nodes(evidence, policy, "EA322", "gpu/each/compute_mode")
    yield from over_nodes(
        evidence, _having("compute_mode", lambda mode: mode != "default", "compute mode"), told
    )


@rule(
    "EA324",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="persistence mode is off",
    why="The driver unloads when no process uses the GPU: each start takes seconds, and settings are lost.",
    how_to_fix="Start nvidia-persistenced (systemctl enable --now nvidia-persistenced, as root).",
)
def persistence_off(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Where the driver has such a mode: not under WSL, nor in a virtual GPU."""

    def judge(fingerprint: Fingerprint) -> Iterator[Found]:
        virtual = any(str(card.facts.get("virtualization")) == "vgpu" for card in cards(fingerprint))
        if is_linux(fingerprint) and not virtual:
            yield from _having("persistence", lambda mode: mode == "disabled", "persistence mode")(
                fingerprint
            )

    yield from over_nodes(evidence, judge)


@rule(
    "EA325",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="MIG is enabled",
    why="A process sees one slice at most, and NCCL joins no two slices: several ranks on the card fail.",
    how_to_fix="For several ranks switch it off: nvidia-smi -mig 0, as root, with the GPU idle.",
    case=MIG_CASE,
)
def mig_enabled(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Whole GPUs and slices are counted apart."""
    yield from over_nodes(evidence, _mig, told_between_nodes(evidence, policy, "EA302", "gpu/each"))


def _mig(fingerprint: Fingerprint) -> Iterator[Found]:
    rows = cards(fingerprint)
    on = [card for card in rows if card.facts.get("mig") == "enabled"]
    # A node where single cards have it is told by EA307.
    if on and not any("mig" in row for row in deviations(fingerprint).values()):
        counted = {named([card]): mapping(card.facts.get("mig_instances")) for card in on}
        lines = [
            f"{name}: " + ", ".join(f"{count} x {profile}" for profile, count in sorted(instances.items()))
            for name, instances in counted.items()
            if instances
        ]
        yield Found(
            f"MIG is enabled on {named(on, rows)}",
            path=path_of(on, fingerprint, "mig"),
            evidence=tuple(lines[:_TOLD]),
        )


@rule(
    "EA326",
    severity="warning",
    scope="node",
    needs=("gpu",),
    title="no GPU is visible",
    why="torch finds none, and a job that asks for cuda ends, although the node has GPUs.",
)
def none_visible(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A variable hides them all: it is empty, or names one that is not there."""
    yield from over_nodes(evidence, _none_visible)


def _none_visible(fingerprint: Fingerprint) -> Iterator[Found]:
    for told in (facts_of(fingerprint, "gpu"), mapping(facts_of(fingerprint, "gpu").get("amd"))):
        shown, count = mapping(told.get("visible")), whole_number(told.get("count"))
        if count and shown.get("count") == 0:
            variable = str(shown.get("variable"))
            text = noted(fingerprint).get("visible")
            path = "gpu/visible/count" if told is facts_of(fingerprint, "gpu") else "gpu/amd/visible/count"
            yield Found(
                f"0 of {count} GPU{'s' * (count > 1)} visible: {variable} hides them",
                path=path,
                evidence=(f"{variable}={text!r}",) if isinstance(text, str) else (),
                hint=f"Unset {variable}, or name the GPUs to be used.",
            )


@difference(
    "EA328",
    severity="warning",
    title="other GPUs are visible",
    why="A launch fails there, starts fewer ranks, or takes other cards than elsewhere.",
    of=("gpu/visible/**", "gpu/amd/visible/**"),
    how_to_fix="Set the variable in the launch script for all ranks, or nowhere.",
)
def visible_gpus_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Only told, not alarmed, where as many are visible, and named in another way."""
    lines = by_nodes(claimed(claim), _visible)
    if any(split_path(drift.path)[-1] in ("count", "visible") for drift in claim.drifts):
        yield claim.found("another number of GPUs is visible", evidence=lines)
    else:
        yield claim.found("the visible GPUs are named in another way", evidence=lines, severity="info")


def _visible(fingerprint: Fingerprint) -> str:
    """`CUDA_VISIBLE_DEVICES='0,1'`; nothing where no variable says so."""
    variable = mapping(facts_of(fingerprint, "gpu").get("visible")).get("variable")
    text = noted(fingerprint).get("visible")
    return f"{variable}={text!r}" if isinstance(variable, str) and isinstance(text, str) else ""


@rule(
    "EA327",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="/dev/nvidia-uvm is missing",
    why="CUDA does not start without it (CUDA_ERROR_UNKNOWN), although nvidia-smi works.",
    how_to_fix="Load it: nvidia-modprobe -u -c 0, or modprobe nvidia-uvm, as root; into a container it has "
    "to be passed.",
)
def uvm_missing(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Only where it was seen not to be there."""

    def judge(fingerprint: Fingerprint) -> Iterator[Found]:
        if facts_of(fingerprint, "gpu").get("uvm") is False and is_linux(fingerprint):
            yield Found("/dev/nvidia-uvm is missing", path="gpu/uvm")

    yield from over_nodes(evidence, judge)


def _having(fact: str, is_bad: Callable[[str], bool], words: str) -> Callable[[Fingerprint], Iterator[Found]]:
    """Of each node, the GPUs whose setting is bad."""

    def bad(card: Card) -> Any:
        value = card.facts.get(fact)
        return value if isinstance(value, str) and is_bad(value) and not card.facts.get("state") else None

    def judge(fingerprint: Fingerprint) -> Iterator[Found]:
        for value, chosen in by_value(cards(fingerprint), bad).items():
            message = f"{named(chosen, cards(fingerprint))}: {words} is {value.replace('_', ' ')}"
            yield Found(message, path=path_of(chosen, fingerprint, fact))

    return judge
