"""The program behind `--deep`: torch is imported and used once, and its own process says what it loaded.

It runs under the audited interpreter, sent as text with `-c`, and therefore imports nothing of
envaudit. Its arguments are a nonce and the families to look for, as JSON:
`{"nccl": ["pattern of file names", "symbol", "form"]}`. It prints lines of the nonce and a JSON
object each, so that what a crash or a hang leaves untold is known by the last step that began:

    {"begins": "import"}           a step begins: import, convolution, collective, libraries
    {"told": {"version": ...}}     what is known so far, key by key

What torch and its libraries print themselves goes to standard error. No port is opened beyond the
loopback interface: gloo and NCCL listen even where there is one rank, and are told to do so there.
"""

import ctypes
import importlib
import json
import os
import re
import resource
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

Row = Tuple[int, int, str]

_TEXT_MAX = 300
_BUFFER_BYTES = 8192
_MAPPED_MAX = 4096
_TIMEOUT_S = 30


def call_version(library: Any, symbol: str, form: str) -> Any:
    """What a library's own version call gives, undecoded: an integer, a list of them or a text; else None.

    `form` is the call's shape: `int f(int *)` is "pointer", `size_t f(void)` "returned", two or three
    integers by pointer "2" and "3", `const char *f(void)` "text", `int f(char *, int *)` "buffer", and
    `int f(int which, int *)` with which = 0, 1, 2 "property" (libraryPropertyType in library_types.h).

    Raises:
        AttributeError: the library has no such symbol.
    """
    function = getattr(library, symbol)
    if form == "pointer":
        code = ctypes.c_int()
        return None if function(ctypes.byref(code)) else code.value
    if form == "returned":
        function.restype = ctypes.c_size_t
        return function()
    if form in ("2", "3"):
        parts = [ctypes.c_int() for _ in range(int(form))]
        return None if function(*map(ctypes.byref, parts)) else [part.value for part in parts]
    if form == "property":
        parts = [ctypes.c_int() for _ in range(3)]
        failed = [function(which, ctypes.byref(part)) for which, part in enumerate(parts)]
        return None if any(failed) else [part.value for part in parts]
    if form == "buffer":
        text, length = ctypes.create_string_buffer(_BUFFER_BYTES), ctypes.c_int()
        return None if function(text, ctypes.byref(length)) else text.value.decode("utf-8", "replace")
    function.restype = ctypes.c_char_p
    return (function() or b"").decode("utf-8", "replace")


def _mapped() -> List[Row]:
    """(first address, end, file) of what this process has mapped from files."""
    rows = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/"):
                first, _, end = fields[0].partition("-")
                rows.append((int(first, 16), int(end, 16), fields[5]))
    return rows


def _file_at(rows: List[Row], address: int) -> Optional[str]:
    return next((path for first, end, path in rows if first <= address < end), None)


def _scopes(rows: List[Row]) -> Iterator[Any]:
    """Where torch's own calls are bound, in the loader's order: the global scope, then torch's library."""
    yield ctypes.CDLL(None)
    for name in ("libtorch_cuda.so", "libtorch_hip.so", "libtorch_cpu.so"):
        path = next((path for _, _, path in rows if os.path.basename(path) == name), None)
        if path:
            yield ctypes.CDLL(path)
            return


def _libraries(families: Dict[str, List[str]]) -> Dict[str, Any]:
    """Of each family the file that torch's calls reach, all files that are mapped, and what it says."""
    rows = _mapped()
    files = sorted({path for _, _, path in rows if ".so" in path})[:_MAPPED_MAX]
    scopes = list(_scopes(rows))
    found = {}
    for name, (pattern, symbol, form) in families.items():
        mapped = [path for path in files if re.match(pattern, os.path.basename(path))]
        bound = None
        for scope in scopes if symbol else ():
            if hasattr(scope, symbol):
                address = ctypes.cast(getattr(scope, symbol), ctypes.c_void_p).value
                bound = _file_at(rows, address or 0)
                break
        if bound is None and mapped:
            bound, scope = mapped[0], ctypes.CDLL(mapped[0])
        if bound is None:
            continue
        said = call_version(scope, symbol, form) if symbol and hasattr(scope, symbol) else None
        found[name] = {"path": bound, "mapped": mapped, "said": said}
    parts = [path for path in files if os.path.basename(path).startswith("libcudnn_")]
    return {"libraries": found, "cudnn_parts": parts}


def _of_torch(torch: Any) -> Dict[str, Any]:
    """What torch says of itself."""
    available = bool(torch.cuda.is_available())
    try:
        nccl = torch.cuda.nccl.version()
    except Exception:  # a build without NCCL has no such function
        nccl = None
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "available": available,
        "architectures": flags.split() if flags else [],
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, nccl)) if isinstance(nccl, tuple) else nccl,
    }


def _convolution(torch: Any, device: str) -> str:
    """One convolution whose sum is known: 8 x 14 x 14 results of 8 x 3 x 3 ones each."""
    image = torch.ones(1, 8, 16, 16, device=device)
    kernel = torch.ones(8, 8, 3, 3, device=device)
    with torch.no_grad():
        total = float(torch.nn.functional.conv2d(image, kernel).sum())
    expected = 8 * 14 * 14 * 8 * 3 * 3
    return "ok" if total == expected else f"the sum is {total!r}, not {expected}"


def _collective(torch: Any, device: str) -> Tuple[Optional[str], Optional[str]]:
    """One sum over one rank; (backend, outcome)."""
    import datetime

    distributed = importlib.import_module("torch.distributed")
    if not distributed.is_available():
        return None, None
    backend = "nccl" if device == "cuda" and distributed.is_nccl_available() else "gloo"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["NCCL_SOCKET_IFNAME"] = "=lo"
    for name in list(os.environ):
        # A fixed meeting place, and files that a training run may be writing.
        if name == "NCCL_COMM_ID" or name.endswith(("_DEBUG_FILE", "_DUMP_FILE")):
            del os.environ[name]
    distributed.init_process_group(
        backend,
        store=distributed.HashStore(),
        rank=0,
        world_size=1,
        timeout=datetime.timedelta(seconds=_TIMEOUT_S),
    )
    tensor = torch.ones(4, device=device)
    distributed.all_reduce(tensor)
    return backend, "ok" if tensor.tolist() == [1.0] * 4 else f"the sum is {tensor.tolist()}"


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:_TEXT_MAX]


def main() -> None:
    """All steps; ends the process without running what torch would do at its exit."""
    nonce, families = sys.argv[1], json.loads(sys.argv[2])
    out = os.dup(1)
    os.dup2(2, 1)
    # The probe bounds its own children's memory; threads' stacks and a GPU's buffers need more.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))

    def say(what: Dict[str, Any]) -> None:
        os.write(out, f"{nonce} {json.dumps(what)}\n".encode("ascii"))

    say({"begins": "import"})
    try:
        torch = importlib.import_module("torch")
        told = _of_torch(torch)
    except BaseException as error:  # also SystemExit and the like, whatever a module raises
        say({"told": {"import": _last_line(error)}})
        os._exit(0)
    say({"told": dict(told, **{"import": "ok"})})
    device = "cuda" if told["available"] else "cpu"
    say({"begins": "convolution"})
    try:
        outcome: Optional[str] = _convolution(torch, device)
    except Exception as error:
        outcome = _last_line(error)
    say({"told": {"device": device, "convolution": outcome}})
    say({"begins": "collective"})
    backend = None
    try:
        backend, outcome = _collective(torch, device)
    except Exception as error:
        outcome = _last_line(error)
    say({"told": {"backend": backend, "collective": outcome}})
    say({"begins": "libraries"})
    say({"told": _libraries(families)})
    os._exit(0)


if __name__ == "__main__":
    main()
