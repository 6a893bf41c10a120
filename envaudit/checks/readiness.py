"""Whether torch can be used on a device at all, said before anything is launched on it.

A CUDA error names neither the driver that is too old nor the kernels that torch was not built with;
these are asked for first. What is asked of torch runs in the worker, what is asked of the driver in the
supervisor (`checks/cards.py`).
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from typing import Any, Iterable, List, Optional, Tuple

_TEXT_MAX = 300


class Unusable(Exception):
    """Torch or a device of it cannot be used; the text is the whole reason."""


def imported_torch() -> Any:
    """The module torch.

    Raises:
        ModuleNotFoundError: there is none.
        Unusable: it does not import, or root must not import it.
    """
    import importlib
    from importlib.util import find_spec

    spec = find_spec("torch")
    if spec is None or not spec.origin:
        raise ModuleNotFoundError("no torch", name="torch")
    writer = writable_by_others(spec.origin) if os.geteuid() == 0 else None
    if writer:
        raise Unusable(f"as root, torch is not imported: {writer}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch = importlib.import_module("torch")
            set_back_defaults(torch)
            return torch
    except BaseException as error:  # also SystemExit and the like, whatever a module raises
        raise Unusable(f"torch cannot be imported: {type(error).__name__}: {last_line(error)}") from None


def set_back_defaults(torch: Any) -> None:
    """Undo what a sitecustomize may have set that gives every operation other types or another device.

    These are settings of the work that is audited; a device is not wrong for them.
    """
    if hasattr(torch, "set_default_device"):
        torch.set_default_device(None)
    if torch.empty(0).dtype != torch.float32 or torch.empty(0).device.type != "cpu":
        torch.set_default_tensor_type(torch.FloatTensor)
    # What was asked for in torch 2.9's words for TF32 can neither be read nor set in those of all releases,
    # which `checks/precision.py` uses; these are torch's defaults.
    for owner in (torch.backends, torch.backends.cudnn):
        if hasattr(owner, "fp32_precision"):
            owner.fp32_precision = "none"
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True
    # Each is off in a process of its own accord; torch 2.4 took the device's name for the second function.
    torch.set_autocast_enabled(False)
    torch.set_autocast_cpu_enabled(False)
    if torch.are_deterministic_algorithms_enabled():
        # What has no deterministic kernel (cumsum on CUDA) is then no error.
        torch.use_deterministic_algorithms(True, warn_only=True)


def writable_by_others(path: str) -> Optional[str]:
    """Who but root can change a file or replace a folder above it, in words; None when nobody can."""
    here = os.path.realpath(path)
    while True:
        try:
            seen = os.lstat(here)
        except OSError:
            return None  # not there: nothing runs
        if seen.st_uid != 0:
            return f"{here} belongs to user {seen.st_uid}"
        sticky_folder = stat.S_ISDIR(seen.st_mode) and seen.st_mode & stat.S_ISVTX
        if seen.st_mode & stat.S_IWOTH and not sticky_folder:
            return f"{here} can be written by everybody"
        if here == os.path.dirname(here):
            return None
        here = os.path.dirname(here)


def device_count(torch: Any, gpus_there: int) -> int:
    """How many GPUs torch can use; 0 where the machine has none, and the CPU is what is tried.

    Args:
        torch: the module.
        gpus_there: the GPUs of the machine by its device nodes.

    Raises:
        Unusable: there are GPUs, and torch cannot use them.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        available = bool(torch.cuda.is_available())
        count = int(torch.cuda.device_count()) if available else 0
    if available and count:
        return count
    if not gpus_there:
        return 0
    gpus = "1 GPU" if gpus_there == 1 else f"{gpus_there} GPUs"
    hidden = next((name for name in _HIDING if os.environ.get(name, "unset") in ("", "-1")), None)
    if hidden:
        raise Unusable(f"{hidden}='{os.environ[hidden]}' hides the machine's {gpus}")
    if not torch.version.cuda and not getattr(torch.version, "hip", None):
        raise Unusable(f"torch {torch.__version__} is a build for the CPU, and the machine has {gpus}")
    old = driver_too_old(torch)
    texts = [last_line(one.message) for one in said if "CUDA" in str(one.message)]
    raise Unusable(f"torch sees none of the machine's {gpus}: {old or (texts or ['no reason given'])[0]}")


_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def driver_too_old(torch: Any) -> Optional[str]:
    """That the driver's CUDA is of an older major version than torch's, in words.

    Within one major version a newer toolkit runs on an older driver (CUDA compatibility guide, minor
    version compatibility). cudaDriverGetVersion says 1000 · major + 10 · minor.
    """
    asked = getattr(torch._C, "_cuda_getDriverVersion", None)
    built = str(torch.version.cuda or "")
    try:
        driver = int(asked()) if asked else 0
    except Exception:  # a driver that is not there at all
        driver = 0
    major = built.split(".")[0]
    if not driver or not major.isdigit() or driver // 1000 >= int(major):
        return None
    return f"the driver knows CUDA {driver // 1000}.{driver % 1000 // 10}, torch is built for {built}"


def without_kernels(architectures: Iterable[str], capability: Tuple[int, int]) -> Optional[str]:
    """That torch has no kernels for a compute capability, in words.

    A cubin `sm_XY` runs on devices of the same major version and at least its minor one, as one of a family
    (`sm_100f`) does, one of an architecture (`sm_90a`) on exactly its own, and PTX `compute_XY` on all that
    are not older (CUDA C++ programming guide, application compatibility).
    """
    names = list(architectures)
    for name in names:
        match = re.match(r"(sm|compute)_(\d+)(\d)([a-z]?)\Z", name)
        if not match:
            continue
        kind, major, minor, letter = match.group(1), int(match.group(2)), int(match.group(3)), match.group(4)
        if letter == "a":
            fits = (major, minor) == capability
        elif kind == "sm":
            fits = major == capability[0] and minor <= capability[1]
        else:
            fits = (major, minor) <= capability
        if fits:
            return None
    if not names:
        return None  # a torch that does not tell: the first kernel will
    return f"torch has kernels for {' '.join(names)}, none for this GPU's {capability[0]}.{capability[1]}"


def check_device(torch: Any, ordinal: int) -> None:
    """Make a GPU the one that is used, or refuse it: no kernel of torch would run there.

    Its context is made here: a card that is broken, or given to another process alone, says so at once.

    Raises:
        Unusable: with the reason.
    """
    tell = getattr(torch.cuda, "get_arch_list", None)
    reason = None
    try:
        if not getattr(torch.version, "hip", None):
            reason = without_kernels(tell() if tell else (), torch.cuda.get_device_capability(ordinal))
        if not reason:
            torch.cuda.set_device(ordinal)
            torch.cuda.synchronize(ordinal)
    except Exception as error:  # RuntimeError, and torch's own of what it had put off
        # What follows in torch's text is how to debug a kernel.
        reason = str(error).partition("\n")[0][:_TEXT_MAX] or type(error).__name__
    if reason:
        raise Unusable(reason)


def gpus_of_machine(dev: str = "/dev") -> int:
    """The NVIDIA or AMD GPUs that have a device node, `/dev/nvidia0` or `/dev/dri/renderD128` with kfd."""
    try:
        names = os.listdir(dev)
    except OSError:
        return 0
    nvidia = [name for name in names if re.match(r"nvidia\d+\Z", name)]
    if nvidia or "kfd" not in names:
        return len(nvidia)
    try:
        return len([name for name in os.listdir(os.path.join(dev, "dri")) if name.startswith("renderD")])
    except OSError:
        return 1


def last_line(said: Any) -> str:
    """The last line of an exception's or a warning's text, bounded."""
    lines: List[str] = [line.strip() for line in str(said).splitlines() if line.strip()]
    return (lines[-1] if lines else type(said).__name__)[:_TEXT_MAX]
