"""What a process that used torch has loaded (`--deep`), against what the files say, and whether it worked.

The loader's answer without an import is what every snapshot rests on. Where a running torch has
something else, either a start-up file changes what is loaded, or the answer is wrong; both matter.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from envaudit.model.drift import join_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, difference, rule

# Without one of these in `libraries` torch has none; others may be opened late, by whoever.
_ALWAYS_TOLD = ("nccl", "cudnn")


class _Conflict(NamedTuple):
    """One thing of which the two say different."""

    path: str
    message: str
    evidence: Tuple[str, ...]


@rule(
    "EA250",
    severity="error",
    scope="node",
    title="static and deep disagree",
    why="Training runs with what is loaded, and every other snapshot compares what the files say.",
    how_to_fix="Look for what changes the start of Python there (sitecustomize, a .pth file, a wrapper); "
    "without any, report it: the loader's rules are read wrong.",
    needs=("deep", "libraries"),
)
def static_and_deep_disagree(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a library, with the nodes that it holds for."""
    nodes: Dict[_Conflict, List[str]] = {}
    for fingerprint in evidence.fingerprints:
        for conflict in _conflicts(fingerprint):
            nodes.setdefault(conflict, []).append(fingerprint.node)
    for conflict, names in nodes.items():
        yield Found(conflict.message, tuple(names), conflict.path, conflict.evidence)


@rule(
    "EA251",
    severity="error",
    scope="node",
    title="torch fails at its first use",
    why="A rank on this node ends, or hangs the others, before its first step.",
    needs=("deep",),
)
def torch_fails(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The import, the convolution or the collective did not end well; later ones follow from it."""
    causes: Dict[Tuple[str, str, str], List[str]] = {}
    for fingerprint in evidence.fingerprints:
        failure = _failure(_facts(fingerprint, "deep"))
        if failure:
            causes.setdefault(failure, []).append(fingerprint.node)
    for (key, what, outcome), names in causes.items():
        yield Found(f"{what} fails", tuple(names), join_path("deep", key), (outcome,))


@difference(
    "EA252",
    severity="error",
    title="torch sees a GPU on some nodes only",
    why="A rank on the others ends at its first use of one, and the rest wait for it.",
    of=("deep/available",),
    order=45,
    how_to_fix="See what the driver says there: envaudit show NODE --section gpu.",
)
def gpu_is_unseen(claim: Claim, policy: Policy) -> Iterator[Found]:
    """What torch.cuda.is_available() says; where the import failed nothing is told, and EA251 speaks."""
    if all(group.state == "present" for drift in claim.drifts for group in drift.groups):
        yield claim.found("torch sees a GPU on some nodes only")


def _failure(deep: Mapping[str, Any]) -> Optional[Tuple[str, str, str]]:
    device = "on the GPU" if deep.get("device") == "cuda" else "on the CPU"
    collective = _map(deep.get("collective"))
    steps = (
        ("import", "import torch", deep.get("import")),
        ("convolution", f"a convolution {device}", deep.get("convolution")),
        (
            "collective",
            f"a collective of one rank with {collective.get('backend')}",
            collective.get("outcome"),
        ),
    )
    return next(
        ((key, what, str(outcome)) for key, what, outcome in steps if outcome not in (None, "ok")), None
    )


def _conflicts(fingerprint: Fingerprint) -> Iterator[_Conflict]:
    static, deep = _facts(fingerprint, "libraries"), _facts(fingerprint, "deep")
    for family, loaded in sorted(_map(deep.get("libraries")).items()):
        told, loaded = _map(static.get(family)), _map(loaded)
        path = join_path("deep", "libraries", family)
        if told:
            if _differ(told, loaded):
                yield _conflict(path, family, _copy(told), _copy(loaded))
            for part, folder in sorted(_map(loaded.get("parts")).items()):
                said = _part(_map(told.get("parts")).get(part))
                if said != folder:
                    yield _conflict(
                        join_path("deep", "libraries", family, "parts", part),
                        f"{family}'s part {part}",
                        said,
                        str(folder),
                    )
        elif family in _ALWAYS_TOLD and static.get("torch"):
            yield _conflict(path, family, "none", _copy(loaded))
    installed, imported = _facts(fingerprint, "torch"), _map(deep.get("torch"))
    for key in ("version", "cuda", "architectures"):
        if key in installed and key in imported and installed[key] != imported[key]:
            path = join_path("deep", "torch", key)
            yield _conflict(path, f"torch's {key}", _shown(installed[key]), _shown(imported[key]))
    says, cudnn = imported.get("cudnn"), _map(static.get("cudnn")).get("version")
    if not _same_version(cudnn, says):
        yield _conflict(
            join_path("deep", "torch", "cudnn"), "the cuDNN that torch names", str(cudnn), str(says)
        )


def _conflict(path: str, what: str, told: str, loaded: str) -> _Conflict:
    evidence = (f"files:  {told}", f"loaded: {loaded}")
    return _Conflict(path, f"{what} is not the one that the files say", evidence)


def _differ(told: Mapping[str, Any], loaded: Mapping[str, Any]) -> bool:
    if told.get("path") != loaded.get("path"):
        return True
    return not _same_version(told.get("version"), loaded.get("version"))


def _same_version(one: Any, other: Any) -> bool:
    """Whether two versions are the same as far as both go: 13.0.96 and 13.0; an unknown one is any."""
    if not isinstance(one, str) or not isinstance(other, str):
        return True
    return all(a == b for a, b in zip(one.split("."), other.split(".")))


def _copy(row: Mapping[str, Any]) -> str:
    return f"{row.get('version') or 'unknown version'}, {row.get('path')}"


def _part(said: Any) -> str:
    if isinstance(said, Mapping):
        return str(said.get("path"))
    return str(said or "none")


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _facts(fingerprint: Fingerprint, name: str) -> Mapping[str, Any]:
    section = fingerprint.sections.get(name)
    return section.facts if section is not None and section.status in ("ok", "partial") else {}
