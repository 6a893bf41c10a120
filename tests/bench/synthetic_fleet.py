"""A fleet that was never there: many nodes alike, a few that differ, every node with notes of its own.

PROVENANCE: made by hand; sizes after a conda environment for training of 500 packages, names and
hashes computed from counters.
"""

from __future__ import annotations

import hashlib
from typing import Dict

from envaudit.model import Fact, Fingerprint, Section, Snapshot

CAPTURED_AT = "2026-11-30T10:00:00Z"
TOOL = "0.0.0"


def synthetic_fleet(nodes: int, packages: int, outliers: int) -> Snapshot:
    """`nodes` fingerprints with `packages` packages each; the last `outliers` nodes differ.

    Each outlier has one package of another version and build that is its own, and another driver.
    Names are `node0001` and so on. Nothing is shared between the nodes' values in memory, as it is
    when they come from the network.
    """
    return Snapshot(
        tuple(
            _fingerprint(number, packages, strange=number > nodes - outliers)
            for number in range(1, nodes + 1)
        )
    )


def _fingerprint(number: int, packages: int, strange: bool) -> Fingerprint:
    sections: Dict[str, Section] = {}
    for name, facts in _facts(number, packages, strange).items():
        notes: Dict[str, Fact] = {
            "read_ms": number % 7,
            "uuid": _hex(f"{name}{number}"),
            "free_bytes": number * 4096,
        }
        sections[name] = Section(name=name, schema=1, status="ok", facts=facts, notes=notes)
    return Fingerprint(
        node=f"node{number:04d}", source="probe", captured_at=CAPTURED_AT, tool=TOOL, sections=sections
    )


def _facts(number: int, packages: int, strange: bool) -> Dict[str, Dict[str, Fact]]:
    distributions = {f"package-{index:03d}": _package(index) for index in range(packages)}
    if strange:
        distributions[f"package-{number % packages:03d}"]["version"] = f"9.{number}.0"
        distributions[f"package-{number % packages:03d}"]["build"] = f"py311_{number}"
    driver = "550.54.14" if strange else "550.54.15"
    gpu: Dict[str, Fact] = {
        "name": "NVIDIA H100 80GB HBM3",
        "memory_bytes": 85520809984,
        "power_limit_mw": 700000,
    }
    return {
        "host": {"launch": "ssh", "kernel": "6.8.0-45-generic", "machine": "x86_64", "cpus": 192},
        "python": {"version": "3.11.9", "implementation": "cpython", "prefix": "/opt/envs/train"},
        "conda": {"prefix": "/opt/envs/train", "channels": ["conda-forge", "nvidia"]},
        "packages": {"distributions": distributions},
        "torch": {"version": "2.13.0", "cuda": "13.0", "arch_list": ["sm_80", "sm_90", "sm_100"]},
        "libraries": {"nccl": {"version": "2.28.3"}, "cudnn": {"version": "9.12.0"}},
        "cuda": {"driver": driver, "toolkits": ["/usr/local/cuda-13.0"]},
        "gpu": {"driver": driver, "devices": [dict(gpu, index=index) for index in range(8)]},
        "env": {"variables": {f"NCCL_OPTION_{index}": str(index) for index in range(40)}},
        "limits": {"nofile_soft": 1048576, "memlock_soft": "unlimited", "stack_soft_bytes": 8388608},
        "clock": {"service": "chrony", "synchronized": True},
        "git": {"commit": _hex("commit")[:40], "dirty": False},
    }


def _package(index: int) -> Dict[str, str]:
    return {
        "version": f"{index % 9}.{index % 17}.{index % 5}",
        "build": f"py311h{_hex(str(index))[:7]}_0",
        "channel": "conda-forge",
        "sha256": _hex(f"package{index}"),
        "origin": "conda",
    }


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()
