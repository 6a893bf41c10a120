"""How a worker is started: under the audited interpreter as its user starts it, with this package beside it.

The package reaches the worker from where it lies: a folder, the one-file form, or the zip that a
transport has in memory, whose descriptor is then handed down. Its place is on `sys.path` for the one
import of `envaudit` alone: nothing of it hides a module of the environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from typing import Dict, List, Mapping, Optional, Tuple

import envaudit

GRACE_S = 2
WORKER = "envaudit.checks.worker"

# prctl(2): PR_SET_PDEATHSIG is 1. The alarm has the default action and is what ends a worker inside a
# library call that never returns to Python, whoever died above it. The probe bounds its own children's
# memory; a GPU's buffers need more. Arguments: the module, the package's place, the parent, the seconds.
_BOOT = """\
import sys
if sys.path and sys.path[0] == "" and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
import os, resource, signal
module, place, parent, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_DFL)
signal.alarm(seconds)
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
except Exception:
    pass
if os.getppid() != parent:
    os._exit(4)
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
sys.path.insert(0, place)
import envaudit
sys.path.remove(place)
from importlib import import_module
import_module(module).main()
"""

_IN_MEMORY = "/proc/self/fd/"


def package_place() -> str:
    """The folder or zip that this package was imported from, as an absolute path."""
    return os.path.abspath(os.path.dirname(next(iter(envaudit.__path__))))


def cache_path(of: str) -> str:
    """A folder of its own for what compilers make; they make it, too, where there is one to be used."""
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:  # nothing can be written here, and most runs have nothing to write
        folder = "/tmp"
    return os.path.join(folder, f"envaudit-{of}-{os.urandom(8).hex()}")


def die_with_parent() -> None:
    """Have the kernel end this process once its parent is gone (PR_SET_PDEATHSIG, prctl(2)).

    What supervises workers would work on for nobody until its budget is over.
    """
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
    except Exception:  # noqa: S110  no libc to be had: workers and sections end at their alarms
        pass


def start(
    interpreter: str,
    environ: Mapping[str, str],
    cwd: Optional[str],
    seconds: float,
    cache: str,
    module: str = WORKER,
) -> subprocess.Popen[bytes]:
    """A worker that waits for its task on standard input; unbuffered pipes for all three streams.

    Args:
        interpreter: absolute path.
        environ: the environment of the audited work.
        cwd: the working directory, None for this process's own.
        seconds: after which it ends itself.
        cache: where compilers put what they make; they make the folder, too.
        module: whose `main` it runs.

    Raises:
        OSError: it cannot be started.
    """
    place = package_place()
    alarm_s = str(int(seconds) + GRACE_S)
    argv: List[str] = [interpreter, "-B", "-c", _BOOT, module, place, str(os.getpid()), alarm_s]
    handed: Tuple[int, ...] = ()
    if place.startswith(_IN_MEMORY):
        handed = (int(place[len(_IN_MEMORY) :]),)
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=_environment(environ, cache),
        cwd=cwd,
        pass_fds=handed,
        restore_signals=True,
    )


def _environment(environ: Mapping[str, str], cache: str) -> Dict[str, str]:
    """What a worker is told by variables; what the user has set stays."""
    wanted: Dict[str, str] = {
        # The order of NVML, so that a card has one number.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # cuBLAS is deterministic across streams with one fixed workspace (cuBLAS, reproducibility).
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # Threads that wait for each other spin, which on a shared machine takes four times as long (GNU's and
        # Intel's OpenMP).
        "OMP_WAIT_POLICY": "passive",
        "KMP_BLOCKTIME": "0",
        # A pool of compilers would outlive a worker that is ended.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(cache, "triton"),
    }
    # oneDNN would take bf16 or TF32 for fp32, which is the user's choice and no fault of a device. So is
    # NVIDIA's variable, which overrules what `precision.py` asks of torch.
    exact = {"ONEDNN_DEFAULT_FPMATH_MODE": "STRICT", "DNNL_DEFAULT_FPMATH_MODE": "STRICT"}
    told = {**wanted, **environ, **exact, "LC_ALL": "C", "LANGUAGE": "C"}
    told.pop("NVIDIA_TF32_OVERRIDE", None)
    return told
