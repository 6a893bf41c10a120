"""Nodes to compare, made by hand after a training node with an H100 pair and a conda environment."""

from __future__ import annotations

from typing import Any, Dict, Optional, Union

from envaudit.model import Fingerprint, Section

CAPTURED_AT = "2026-11-30T10:00:00Z"
TOOL = "0.1.0"


def fingerprint(node: str, source: str = "probe", **sections: Union[Dict[str, Any], Section]) -> Fingerprint:
    """A fingerprint of sections that are `ok`, where only their facts are given."""
    built = {
        name: given if isinstance(given, Section) else Section(name, 1, "ok", given)
        for name, given in sections.items()
    }
    return Fingerprint(node, source, CAPTURED_AT, TOOL, built)


def package(
    version: str, build: str = "py311_0", channel: str = "conda-forge", md5: str = ""
) -> Dict[str, str]:
    """A conda package's fields; the hash follows from version and build where none is given."""
    return {"version": version, "build": build, "channel": channel, "md5": md5 or f"{version}-{build}"}


def training_node(
    node: str,
    *,
    launch: str = "ssh",
    driver: str = "550.54.15",
    nccl: str = "2.21.5",
    algo: Optional[str] = "Ring",
    vbios: str = "96.00.89.00.01",
    conda_packages: Optional[Dict[str, Dict[str, str]]] = None,
    **sections: Union[Dict[str, Any], Section],
) -> Fingerprint:
    """A healthy node; arguments make it another one, whole sections may be replaced."""
    nccl_settings = {} if algo is None else {"NCCL_ALGO": {"value": algo, "origin": "environment"}}
    conda = {"numpy": package("1.26.4"), "pytorch": package("2.4.1"), **(conda_packages or {})}
    each = {"product": "NVIDIA H100 80GB HBM3", "memory_bytes": 85520809984, "vbios": vbios}
    visible = {"count": 2, "form": "all"}
    whole: Dict[str, Union[Dict[str, Any], Section]] = {
        "host": {"launch": launch, "kernel": "6.8.0-45-generic"},
        "conda": {"packages": conda},
        "packages": {"distributions": {"triton": {"version": "3.0.0", "installer": "pip"}}},
        "torch": {"version": "2.4.1", "cuda": "12.4", "architectures": ["sm_80", "sm_90"]},
        "libraries": {"nccl": {"version": nccl, "origin": "env"}},
        "gpu": {"driver": driver, "count": 2, "each": each, "devices": {}, "visible": visible},
        "env": {"nccl": nccl_settings, "variables": {"OMP_NUM_THREADS": "8"}},
    }
    whole.update(sections)
    return fingerprint(node, **whole)
