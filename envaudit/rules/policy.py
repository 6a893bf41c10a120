"""What the user wants of a run: severities, thresholds, must-match packages, roles, waivers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Mapping, Optional, Tuple

from envaudit.model.drift import Drift
from envaudit.model.finding import THRESHOLDS
from envaudit.model.pathpattern import PathPattern

# What a rule or a path may be set to; `off` says nothing at all.
LEVELS = ("error", "warning", "info", "off")

# Packages that all ranks must have alike: what is pickled or negotiated between them, or computes.
# A difference in one of them has broken real runs (ray 1263: two versions of cloudpickle).
MUST_MATCH = (
    "accelerate",
    "apex",
    "cloudpickle",
    "colossalai",
    "dask",
    "datasets",
    "deepspeed",
    "distributed",
    "fairscale",
    "flash-attn",
    "jax",
    "jaxlib",
    "lightning",
    "megatron-core",
    "mpi4py",
    "numpy",
    "pytorch",
    "pytorch-lightning",
    "ray",
    "safetensors",
    "tokenizers",
    "torch",
    "torchaudio",
    "torchvision",
    "transformer-engine",
    "transformers",
    "triton",
    "vllm",
    "xformers",
)

# Of mounts, start-up files, variables, visible GPUs, interfaces, and of what no rule has a word for.
_SMALL_DIFFERENCES = ("EA140", "EA210", "EA219", "EA223", "EA243", "EA299", "EA328", "EA424")

# A profile is a table of rule → level; what it does not name stays as the rule has it.
PROFILES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "lenient": MappingProxyType(
            dict.fromkeys((*_SMALL_DIFFERENCES, "EA212", "EA216", "EA331", "EA332"), "info")
        ),
        "default": MappingProxyType({}),
        "strict": MappingProxyType(dict.fromkeys((*_SMALL_DIFFERENCES, "EA212", "EA216", "EA332"), "error")),
    }
)


@dataclass(frozen=True)
class Waiver:
    """Findings that somebody has accepted for a time; missing evidence cannot be accepted.

    Attributes:
        rule: the id that is waived.
        expires: the last day on which it holds, `2027-01-31`.
        reason: why it is accepted.
        owner: who accepted it.
        path: only findings whose path matches this pattern; None for all.
        nodes: only these nodes; empty for all.
        where: where it is written, `envaudit.toml: waivers[2]`.
    """

    rule: str
    expires: str
    reason: str = ""
    owner: str = ""
    path: Optional[PathPattern] = None
    nodes: Tuple[str, ...] = ()
    where: str = ""

    def names(self, node: str) -> bool:
        """Whether it is for this node, `n2`, or for what is stored of it, `n2@good`."""
        return not self.nodes or node.partition("@")[0] in self.nodes


@dataclass(frozen=True)
class Policy:
    """What the user wants of a run.

    Attributes:
        fail_on: a key of `model.finding.THRESHOLDS`.
        require: sections without which a node's evidence is incomplete. That a subject is seen
            to be absent is evidence; that nobody looked is none.
        named: those of them that the user named: whose subject must be there as well.
        profile: a key of `PROFILES`.
        levels: rule id → one of `LEVELS`; stronger than the profile.
        paths: pattern and level of fact paths; the first that matches a difference decides.
        thresholds: rule id → name → value, over the rules' own.
        must_match: packages that all nodes must have alike.
        roles: the role of each node that has one; all others share the role "".
        waivers: what is accepted, and until when.
        today: the day of the run in UTC, `2026-11-30`; empty where no waiver is to be judged.
        full: whether the run looks at everything, so that a waiver without a finding is unused.
    """

    fail_on: str = "error"
    require: Tuple[str, ...] = ("torch", "libraries", "packages", "gpu")
    named: Tuple[str, ...] = ()
    profile: str = "default"
    levels: Mapping[str, str] = field(default_factory=dict)
    paths: Tuple[Tuple[PathPattern, str], ...] = ()
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    must_match: Tuple[str, ...] = MUST_MATCH
    roles: Mapping[str, str] = field(default_factory=dict)
    waivers: Tuple[Waiver, ...] = ()
    today: str = ""
    full: bool = False

    def __post_init__(self) -> None:
        """Hold every word to its list.

        Raises:
            ValueError: one is none of them.
        """
        if self.fail_on not in THRESHOLDS:
            raise ValueError(f"fail_on is one of {', '.join(THRESHOLDS)}, not {self.fail_on!r}")
        if self.profile not in PROFILES:
            raise ValueError(f"profile is one of {', '.join(PROFILES)}, not {self.profile!r}")
        for level in (*self.levels.values(), *(level for _, level in self.paths)):
            if level not in LEVELS:
                raise ValueError(f"a level is one of {', '.join(LEVELS)}, not {level!r}")

    def level_of(self, rule_id: str, default: str, own: str = "") -> str:
        """The severity of a rule's finding, or `off`.

        A profile moves a rule's usual findings; one that the rule itself holds to be worse or
        milder than usual stays so. Missing evidence stays missing evidence, whatever a policy says.

        Args:
            rule_id: `EA214`.
            default: the rule's severity.
            own: what the rule holds this finding to be, where that is not its default.
        """
        own = own or default
        if own == "incomplete":
            return own
        profile = PROFILES[self.profile].get(rule_id) if own == default else None
        return self.levels.get(rule_id) or profile or own

    def quiets(self, rule_id: str) -> bool:
        """Whether a level or a waiver may make less than an error of what a rule says.

        Nothing that is an error by itself is left out for the sake of such a rule's finding.
        """
        lowered = self.levels.get(rule_id, "error") != "error"
        return lowered or any(waiver.rule == rule_id for waiver in self.waivers)

    def waivers_of(self, drift: Drift, *rule_ids: str) -> Tuple[Waiver, ...]:
        """The waivers of some rules that mean this difference by its path: it is told apart from the rest."""
        return tuple(
            waiver
            for waiver in self.waivers
            if waiver.path is not None
            and waiver.rule in rule_ids
            and waiver.path.matches(drift.path)
            and any(map(waiver.names, drift.outliers))
        )

    def level_of_path(self, path: str) -> Optional[str]:
        """What the policy says of a fact path; None where it says nothing."""
        return next((level for pattern, level in self.paths if pattern.matches(path)), None)
