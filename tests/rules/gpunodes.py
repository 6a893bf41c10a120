"""Fake nodes with GPUs, read by the probe's own sections, of which a test changes one thing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint, Section
from envaudit.probe import registry
from envaudit.probe.context import Context
from envaudit.rules import Evidence, Policy, judge
from tests.diff.nodes import fingerprint
from tests.probe.conftest import NODES

Changes = Mapping[str, Mapping[str, Any]]
ARCHITECTURES = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
DEFAULT = Policy()


class Fakes:
    """Makes fake nodes below a folder.

    Without an argument a node is `healthy-h100`: two H100 behind NVSwitches, driver 550.54.15.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def node(
        self,
        name: str = "node01",
        fixture: str = "healthy-h100",
        *,
        facts: Optional[Changes] = None,
        notes: Optional[Changes] = None,
        system: Optional[Mapping[str, Any]] = None,
        files: Optional[Mapping[str, Optional[str]]] = None,
        commands: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, Optional[str]]] = None,
        torch: Optional[Mapping[str, Any]] = None,
    ) -> Fingerprint:
        """A fake node, read as any other.

        Args:
            name: of the node.
            fixture: a folder of fixtures/nodes.
            facts: by ordinal, or `*` for all, what NVML says of a card.
            notes: the same of what is only noted.
            system: what NVML says of the driver; `init` is the outcome of its start.
            files: what they hold; None: the file or folder is gone.
            commands: what programs print.
            environ: variables; None: not set.
            torch: facts of a section made by hand.
        """
        folder = self.folder / name
        folder.mkdir(parents=True)
        if files:
            shutil.copytree(NODES / fixture / "root", folder / "root", symlinks=True)
        else:
            (folder / "root").symlink_to(NODES / fixture / "root")
        made = json.loads((NODES / fixture / "node.json").read_text())
        _change(made.get("nvml", []), facts or {}, notes or {}, system or {})
        for key, text in (commands or {}).items():
            made["commands"][key] = {"rc": 0, "stdout": text}
        for variable, value in (environ or {}).items():
            made["environ"].pop(variable, None)
            if value is not None:
                made["environ"][variable] = value
        (folder / "node.json").write_text(json.dumps(made))
        for path, text_or_none in (files or {}).items():
            _put(folder / "root" / path.lstrip("/"), text_or_none)
        context = Context.of_fixture(str(folder))
        sections: Dict[str, Union[Dict[str, Any], Section]] = {}
        for section in ("cuda", "gpu", "host"):
            answer = registry.load_section(section).read(context)
            told = (dict(answer.facts), dict(answer.notes), tuple(answer.errors))
            sections[section] = Section(section, 1, answer.status, *told)
        if torch is not None:
            own = {"version": "2.4.1", "cuda": "12.4", "hip": None, "architectures": ARCHITECTURES, **torch}
            sections["torch"] = Section("torch", 1, "ok", own)
        return fingerprint(name, **sections)

    def nodes(self, names: Sequence[str], **changes: Any) -> List[Fingerprint]:
        """Several alike."""
        return [self.node(name, **changes) for name in names]


def _change(rows: List[Dict[str, Any]], facts: Changes, notes: Changes, system: Mapping[str, Any]) -> None:
    for row in rows:
        if "system" in row:
            row["system"].update({key: value for key, value in system.items() if key in row["system"]})
            if row["system"]["init"]:
                row["system"]["values"] = {"nvml": row["system"]["values"]["nvml"]}
            others = {key: value for key, value in system.items() if key not in row["system"]}
            row["system"]["values"].update(others)
        if "device" in row:
            ordinal = str(row["device"]["ordinal"])
            for kind, changes in (("facts", facts), ("notes", notes)):
                for key in ("*", ordinal):
                    row["device"][kind].update(changes.get(key, {}))
    ended = any(row.get("system", {}).get("init") for row in rows)
    rows[:] = [row for row in rows if not (ended and "device" in row)]


def _put(path: Path, text: Optional[str]) -> None:
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def found(
    nodes: Iterable[Fingerprint], policy: Policy = DEFAULT, *, gate: bool = False, beside: Sequence[str] = ()
) -> List[Finding]:
    """What the rules EA3xx say of these nodes, and EA299 of their GPUs; without the rules `beside`."""
    nodes = tuple(nodes)
    findings = judge(Evidence(nodes, drifts=compare(nodes), gate=gate), policy)
    ours = [one for one in findings if one.rule.startswith("EA3") or one.path.startswith("gpu")]
    return [one for one in ours if one.rule not in beside and one.severity != "incomplete"]


def brief(findings: Iterable[Finding]) -> List[Tuple[str, str, Tuple[str, ...]]]:
    """Rule, severity and nodes of each."""
    return [(one.rule, one.severity, one.nodes) for one in findings]


def words(findings: Iterable[Finding]) -> List[Tuple[str, str, str]]:
    """Rule, severity and message of each."""
    return [(one.rule, one.severity, one.message) for one in findings]
