"""Nodes whose environment is really laid out on disk and read by the probe, for rules to judge.

The libraries are those of `tests.probe.fakelibs`, so that the machine's own loader says which copy
is taken. Only the GPUs are made by hand.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint
from envaudit.model.codec import fingerprint_of_answer
from envaudit.model.section import Section
from envaudit.probe import registry
from envaudit.probe.runner import probe
from envaudit.rules import Evidence, Policy, judge
from tests.diff.nodes import fingerprint
from tests.probe import fakelibs
from tests.probe.conftest import NODES
from tests.probe.test_libraries_section import Environment

H100S: Dict[str, Any] = {
    "platform": "linux",
    "driver": "580.65.06",
    "cuda": "13.0",
    "count": 8,
    "visible": {"count": 8, "form": "all", "variable": None},
    "each": {"product": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"},
    "devices": {},
}
SECTIONS = ("python", "packages", "torch", "libraries", "cuda", "env")
REQUIRES = ("nvidia-cudnn-cu13==9.24.0.43", "nvidia-nccl-cu13==2.30.7")


def lay_out(prefix: Path, **stack: Any) -> Environment:
    """A CUDA 13 stack of wheels with torchvision and two packages of Python; `stack` as `build_stack`."""
    environment = Environment(prefix)
    options = {"requires": REQUIRES, **stack.pop("torch_options", {})}
    fakelibs.build_stack(environment.site, torch_options=options, **stack)
    add_companion(environment, "torchvision", "0.29.1+cu130")
    fakelibs.write_dist_info(environment.site, "regex", "2026.11.1")
    fakelibs.write_dist_info(environment.site, "numpy", "2.3.1")
    return environment


def add_companion(environment: Environment, name: str, version: str) -> None:
    """A torchvision or torchaudio as the wheels of the default index have it: only its file names the tag."""
    folder = Path(environment.site, name)
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text("")
    (folder / "version.py").write_text(f"__version__ = {version!r}\n")
    fakelibs.write_dist_info(environment.site, name, version.partition("+")[0])


def read(environment: Environment, node: str, environ: Optional[Dict[str, str]] = None) -> Fingerprint:
    """The node as the probe's own sections tell it."""
    context = environment.context(environ)
    sections: Dict[str, Any] = {"host": {"launch": "slurm", "glibc": "2.39"}, "gpu": H100S}
    for name in SECTIONS:
        answer = registry.load_section(name).read(context)
        sections[name] = Section(
            name, 1, answer.status, dict(answer.facts), dict(answer.notes), tuple(answer.errors)
        )
    # Each test's environment lies in a folder of its own; on nodes that are alike it is one path.
    for section in sections.values():
        if isinstance(section, Section):
            section.facts.update(_moved(section.facts, str(environment.prefix)))
    return fingerprint(node, **sections)


def _moved(facts: Any, prefix: str) -> Any:
    if isinstance(facts, dict):
        return {key: _moved(value, prefix) for key, value in facts.items()}
    if isinstance(facts, list):
        return [_moved(value, prefix) for value in facts]
    return facts.replace(prefix, "/srv/env") if isinstance(facts, str) else facts


def renamed(node: Fingerprint, name: str) -> Fingerprint:
    """The same node under another name."""
    return Fingerprint(name, node.source, node.captured_at, node.tool, node.sections)


def changed(
    node: Fingerprint, section: str, change: Callable[[Dict[str, Any]], Dict[str, Any]]
) -> Fingerprint:
    """The node with other facts in one section."""
    was = node.sections[section]
    now = Section(was.name, was.schema, was.status, change(dict(was.facts)), was.notes, was.errors)
    return Fingerprint(node.node, node.source, node.captured_at, node.tool, {**node.sections, section: now})


def twin(tmp_path: Path, name: str, edits: Dict[str, str]) -> Fingerprint:
    """A fake node of fixtures/nodes with texts replaced in its files and in their names."""
    folder = tmp_path / name
    shutil.copytree(Path(NODES) / name, folder, symlinks=True)
    for old, new in edits.items():
        for top, folders, files in os.walk(folder, topdown=False):
            for file in files:
                path = Path(top, file)
                if not path.is_symlink() and old.encode() in path.read_bytes():
                    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
            for entry in [*folders, *files]:
                if old in entry:
                    os.rename(os.path.join(top, entry), os.path.join(top, entry.replace(old, new)))
    answer = probe({"root": str(folder), "tool": "1"})
    return fingerprint_of_answer(answer, node=name, source="probe", where="answer")


def judged(nodes: List[Fingerprint], policy: Policy = Policy()) -> List[Finding]:  # noqa: B008
    """What all rules say of these nodes and of their differences."""
    return list(judge(Evidence(tuple(nodes), drifts=compare(nodes)), policy))
