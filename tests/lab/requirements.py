"""What the machine must have for the lab, and the reason in words where it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import List

# Program, and the Debian package that brings it.
_PROGRAMS = {
    "cluster": (
        ("/usr/sbin/sshd", "openssh-server"),
        ("ssh", "openssh-client"),
        ("ssh-keygen", "openssh-client"),
        ("ip", "iproute2"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
    ),
    "chrony": (("chronyd", "chrony"), ("chronyc", "chrony")),
    "faketime": (("faketime", "faketime"),),
    "slurm": (
        ("slurmctld", "slurm-wlm"),
        ("slurmd", "slurm-wlm"),
        ("srun", "slurm-wlm"),
        ("munged", "munge"),
    ),
    "compiler": (("gcc", "gcc"),),
    "browser": (("chromium", "chromium"),),
}

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing(part: str) -> List[str]:
    """Why `part`, a key of `_PROGRAMS`, cannot run here; empty where it can."""
    reasons = []
    if part == "cluster":
        if os.geteuid() != 0:
            reasons.append("the lab needs root: it makes network and mount namespaces")
        elif not _may_unshare():
            reasons.append("this root may not make network namespaces (a container without CAP_SYS_ADMIN?)")
    for program, package in _PROGRAMS[part]:
        if shutil.which(program, path=_SYSTEM_PATH) is None:
            reasons.append(f"{os.path.basename(program)} is missing: apt-get install {package}")
    return reasons


def _may_unshare() -> bool:
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
    )
    return tried.returncode == 0
