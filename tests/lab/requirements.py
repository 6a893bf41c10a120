"""What the machine must have for the lab, and the reason in words where it does not."""

from __future__ import annotations

import ctypes
import os
import shutil
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
    "slurm": (
        ("slurmctld", "slurm-wlm"),
        ("slurmd", "slurm-wlm"),
        ("srun", "slurm-wlm"),
        ("munged", "munge"),
    ),
    "compiler": (("gcc", "gcc"),),
}

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

CLONE_NEWNET = 0x40000000  # linux/sched.h


def missing(part: str) -> List[str]:
    """Why `part` ("cluster", "chrony", "slurm", "compiler") cannot run here; empty where it can."""
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
    """Tries it in a child, which ends with the answer."""
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        os._exit(0 if libc.unshare(CLONE_NEWNET) == 0 else 1)
    _pid, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0
