"""Small real libraries that stand in for NVIDIA's and torch's, compiled with gcc where a test wants them.

They carry what the probe reads of the real ones: a soname, the version call, the version text, a
search path, and for torch the needed libraries. So the machine's own loader decides which copy is
taken, and two directories with another NCCL are two nodes that really differ.

    site = "/srv/env/lib/python3.11/site-packages"
    fakelibs.build_stack(site, torch="2.14.1+cu130", nccl="2.30.7", cudnn="9.24.0", cudart="13.0")
    fakelibs.build_nccl("/opt/old-nccl", "2.18.5")            # put it on LD_LIBRARY_PATH

Every function returns the path of the library (or folder) it made and may be called again on the
same place, which replaces it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from typing import Dict, Optional, Sequence, Tuple

CUDNN_PARTS = ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled")

# What a call does instead of answering, by the name a test asks for.
BEHAVIOURS = {
    "answers": "",
    # With the default action, lest the test run's own handler print where it is.
    "crashes": "signal(SIGSEGV, SIG_DFL); raise(SIGSEGV);",
    "hangs": "for (;;) sleep(1);",
    "exits": "_exit(0);",
}

# soname and the folder of the wheel, by library.
SONAMES = {
    "nccl": "libnccl.so.2",
    "cudnn": "libcudnn.so.{major}",
    "cudart": "libcudart.so.{major}",
    "cublas": "libcublas.so.{major}",
    "cublasLt": "libcublasLt.so.{major}",
}


def compile_library(
    path: str,
    source: str,
    *,
    soname: Optional[str] = None,
    search: str = "none",
    search_dirs: Sequence[str] = (),
    needs: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> str:
    """Compile C text into the shared library `path`.

    `search` is "RPATH", "RUNPATH" or "none" and says which of the two dynamic tags `search_dirs`
    go into. `needs` are sonames: they need not exist, the loader looks for them when it loads.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    key = (source, soname, search, tuple(search_dirs), tuple(needs), tuple(flags))
    if key not in _COMPILED:
        _COMPILED[key] = _compiled(*key)
    with open(path + ".new", "wb") as stream:
        stream.write(_COMPILED[key])
    os.chmod(path + ".new", 0o755)
    os.replace(path + ".new", path)
    return path


# The tests of one run build the same stack many times over, and a compiler start costs 40 ms.
_COMPILED: Dict[Tuple[object, ...], bytes] = {}


def _compiled(
    source: str,
    soname: Optional[str],
    search: str,
    search_dirs: Sequence[str],
    needs: Sequence[str],
    flags: Sequence[str],
) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        stubs = [_stub(scratch, needed) for needed in needs]
        path = os.path.join(scratch, "compiled")
        command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-x", "c", "-", "-o", path]
        if soname:
            command.append(f"-Wl,-soname,{soname}")
        if search != "none":
            tags = {"RPATH": "--disable-new-dtags", "RUNPATH": "--enable-new-dtags"}[search]
            command += [f"-Wl,{tags}", f"-Wl,-rpath,{':'.join(search_dirs)}"]
        # "-x none": what follows is told by its name again, not C text.
        command += ["-Wl,--no-as-needed", "-x", "none", *stubs, *flags]
        subprocess.run(command, input=source, text=True, check=True, stdout=subprocess.DEVNULL)
        with open(path, "rb") as stream:
            return stream.read()


def _stub(scratch: str, soname: str) -> str:
    """An empty library whose only use is to put its soname among the needed ones."""
    path = os.path.join(scratch, soname)
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, f"-Wl,-soname,{soname}"]
    subprocess.run(command, input="", text=True, check=True)
    return path


def _integer(version: str, *factors: int) -> int:
    return sum(int(part) * factor for part, factor in zip(version.split("."), factors))


def nccl_code(version: str) -> int:
    """What ncclGetVersion says: 2.18.5 is 21805, and up to 2.8 the older 2.8.4 is 2804 (nccl.h)."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return _integer(version, 1000, 100, 1) if (major, minor) <= (2, 8) else _integer(version, 10000, 100, 1)


def cudnn_code(version: str) -> int:
    """What cudnnGetVersion says: 9.1.0 is 90100, and before 9 the older 8.9.2 is 8902."""
    return (
        _integer(version, 10000, 100, 1)
        if int(version.split(".")[0]) >= 9
        else _integer(version, 1000, 100, 1)
    )


def build_nccl(
    directory: str,
    version: str,
    *,
    behaviour: str = "answers",
    real_name: bool = False,
    exports: Sequence[str] = (),
) -> str:
    """libnccl.so.2 with `ncclGetVersion` and the text "NCCL version X".

    `real_name` lays it out as a system package does: libnccl.so.2 is a link to libnccl.so.X.Y.Z.
    `exports` are further functions, which fail, for a torch that resolves all symbols when it loads.
    """
    failing = "".join(f"int {name}(void) {{ return 1; }}\n" for name in exports if name != "ncclGetVersion")
    source = f"""
        #include <signal.h>
        #include <unistd.h>
        const char nccl_text[] = "NCCL version {version}+cuda13.0";
        const char *ncclText(void) {{ return nccl_text; }}
        int ncclGetVersion(int *version) {{
            {BEHAVIOURS[behaviour]} *version = {nccl_code(version)}; return 0;
        }}
        {failing}
    """
    return _build(directory, "libnccl.so.2", f"libnccl.so.{version}" if real_name else "", source)


def build_cudnn(
    directory: str,
    version: str,
    *,
    parts: Sequence[str] = CUDNN_PARTS,
    search: str = "RPATH",
    search_dirs: Sequence[str] = ("$ORIGIN",),
    behaviour: str = "answers",
    real_name: bool = False,
) -> str:
    """libcudnn.so.N with `cudnnGetVersion`, and its sublibraries beside it.

    As the real one does, it loads libcudnn_graph.so.N by its bare name when asked for its version,
    through its own search path.
    """
    major = version.split(".")[0]
    suffix = f".so.{version}" if real_name else ""
    for part in parts:
        build_cudnn_part(directory, part, version, real_name=real_name)
    source = f"""
        #include <dlfcn.h>
        #include <signal.h>
        #include <unistd.h>
        unsigned long cudnnGetVersion(void) {{
            {BEHAVIOURS[behaviour]}
            dlopen("libcudnn_graph.so.{major}", RTLD_NOW);
            return {cudnn_code(version)};
        }}
    """
    real = f"libcudnn{suffix}" if real_name else ""
    return _build(
        directory,
        f"libcudnn.so.{major}",
        real,
        source,
        search=search,
        search_dirs=search_dirs,
        flags=("-ldl",),
    )


def build_cudnn_part(directory: str, part: str, version: str, *, real_name: bool = False) -> str:
    """One sublibrary, such as libcudnn_ops.so.9."""
    major = version.split(".")[0]
    real = f"libcudnn_{part}.so.{version}" if real_name else ""
    source = f'const char part_text[] = "cuDNN {part} {version}";'
    return _build(directory, f"libcudnn_{part}.so.{major}", real, source)


def build_cudart(directory: str, version: str, *, behaviour: str = "answers", real_name: bool = False) -> str:
    """libcudart.so.N with `cudaRuntimeGetVersion`; `version` is 12.4 or, as a file name has it, 12.4.127."""
    source = f"""
        #include <signal.h>
        #include <unistd.h>
        int cudaRuntimeGetVersion(int *version) {{
            {BEHAVIOURS[behaviour]} *version = {_integer(version, 1000, 10)}; return 0;
        }}
    """
    soname = SONAMES["cudart"].format(major=version.split(".")[0])
    return _build(directory, soname, f"libcudart.so.{version}" if real_name else "", source)


def build_cublas(directory: str, version: str, *, behaviour: str = "answers", real_name: bool = False) -> str:
    """libcublas.so.N and libcublasLt.so.N with `cublasLtGetVersion`."""
    major = version.split(".")[0]
    source = f"""
        #include <signal.h>
        #include <unistd.h>
        unsigned long cublasLtGetVersion(void) {{
            {BEHAVIOURS[behaviour]} return {_integer(version, 10000, 100, 1)};
        }}
    """
    _build(directory, f"libcublasLt.so.{major}", f"libcublasLt.so.{version}" if real_name else "", source)
    main = "int cublasCreate_v2(void **handle) { return 1; }"
    return _build(directory, f"libcublas.so.{major}", f"libcublas.so.{version}" if real_name else "", main)


def build_libcuda(directory: str, version: str) -> str:
    """libcuda.so.1, a link to libcuda.so.VERSION as the driver's installer and cuda-compat make it."""
    return _build(
        directory, "libcuda.so.1", f"libcuda.so.{version}", "int cuInit(unsigned flags) { return 100; }"
    )


def _build(directory: str, soname: str, real: str, source: str, **options: object) -> str:
    path = os.path.join(directory, soname)
    if not real or real == soname:
        return compile_library(path, source, soname=soname, **options)  # type: ignore[arg-type]
    compile_library(os.path.join(directory, real), source, soname=soname, **options)  # type: ignore[arg-type]
    if os.path.lexists(path):
        os.unlink(path)
    os.symlink(real, path)
    return path


_PRELOADS = """
def _preload_cuda_deps(err=None, required=True):
    cuda_libs = [
        ("cublas", "libcublasLt.so.*[0-9]"),
        ("cublas", "libcublas.so.*[0-9]"),
        ("cudnn", "libcudnn.so.*[0-9]"),
        ("cuda_runtime", "libcudart.so.*[0-9]"),
        ("nccl", "libnccl.so.*[0-9]"),
    ]


def _load_global_deps():
    try:
        {body}
    except OSError as err:
        _preload_cuda_deps(err)
"""


def build_torch(
    site_packages: str,
    version: str = "2.14.1+cu130",
    *,
    cuda: Optional[str] = "13.0",
    needs: Sequence[str] = (
        "libcudart.so.13",
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcudnn.so.9",
        "libnccl.so.2",
    ),
    search: str = "RPATH",
    search_dirs: Sequence[str] = (
        "$ORIGIN/../../nvidia/cudnn/lib",
        "$ORIGIN/../../nvidia/nccl/lib",
        "$ORIGIN/../../nvidia/cu13/lib",
        "$ORIGIN",
    ),
    static_nccl: Optional[str] = None,
    architectures: str = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
    git_version: str = "5c4886908584029761b579af026dcfb627c84070",
    installer: str = "pip",
    preloads: str = "",
    libraries_in: str = "",
    requires: Sequence[str] = (),
) -> str:
    """A `torch` folder as the probe reads it, with version.py, dist-info and torch/lib.

    `cuda=None` makes a CPU build, without libtorch_cuda.so. `static_nccl` puts the version text
    into libtorch_cuda.so instead of needing a libnccl, as conda builds of the pytorch channel do.
    Nothing of it can be imported: __init__.py raises. `preloads` is the body of its
    `_load_global_deps`, from which the probe reads what torch loads by path. `libraries_in` is the
    folder that holds the libraries where torch/lib has only links to them, as conda-forge lays it out.
    `requires` are lines of its record.
    """
    folder = os.path.join(site_packages, "torch")
    library = os.path.join(folder, "lib")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(library)
    refusal = 'raise ImportError("a stand-in for torch was imported")\n'
    _write(os.path.join(folder, "__init__.py"), refusal + _PRELOADS.format(body=preloads or "pass"))
    _write(
        os.path.join(folder, "version.py"),
        "from typing import Optional\n\n"
        f"__version__ = {version!r}\ndebug = False\ncuda: Optional[str] = {cuda!r}\n"
        f"git_version = {git_version!r}\nhip: Optional[str] = None\n",
    )
    for stale in os.listdir(site_packages):
        if stale.startswith("torch-") and stale.endswith(".dist-info"):
            shutil.rmtree(os.path.join(site_packages, stale))
    write_dist_info(site_packages, "torch", version, installer=installer, requires=requires)
    text = f'const char flags_text[] = "{architectures}"; const char *flags(void) {{ return flags_text; }}'
    torch_python_needs = ["libtorch_cpu.so"] + (["libtorch_cuda.so"] if cuda else [])
    compile_library(os.path.join(library, "libtorch_cpu.so"), "int at_cpu;", soname="libtorch_cpu.so")
    compile_library(
        os.path.join(library, "libtorch_python.so"),
        text if cuda else "int torch_python;",
        soname="libtorch_python.so",
        needs=torch_python_needs,
        search="RPATH",
        search_dirs=("$ORIGIN",),
    )
    if cuda:
        compile_library(
            os.path.join(library, "libtorch_global_deps.so"),
            "int global_deps;",
            soname="libtorch_global_deps.so",
            needs=[needed for needed in needs if needed.startswith("libcudart.")],
            search=search,
            search_dirs=search_dirs,
        )
        if static_nccl:
            needs = [needed for needed in needs if not needed.startswith("libnccl.")]
        nccl = f'const char nccl_text[] = "NCCL version {static_nccl}+cuda{cuda}";' if static_nccl else ""
        compile_library(
            os.path.join(library, "libtorch_cuda.so"),
            "int at_cuda; " + nccl,
            soname="libtorch_cuda.so",
            needs=[*needs, "libtorch_cpu.so"],
            search=search,
            search_dirs=search_dirs,
        )
    compile_library(
        os.path.join(folder, f"_C.{sysconfig.get_config_var('SOABI')}.so"),
        "int extension;",
        needs=("libtorch_python.so",),
        search="RPATH",
        search_dirs=("$ORIGIN/lib",),
    )
    if libraries_in:
        for name in os.listdir(library):
            os.replace(os.path.join(library, name), os.path.join(libraries_in, name))
            os.symlink(os.path.join(libraries_in, name), os.path.join(library, name))
    return folder


def build_stack(
    site_packages: str,
    *,
    torch: str = "2.14.1+cu130",
    nccl: str = "2.30.7",
    cudnn: str = "9.24.0",
    cudart: str = "13.0",
    cublas: str = "13.1.1",
    search: str = "RPATH",
    torch_options: Optional[Dict[str, object]] = None,
) -> str:
    """A torch and the nvidia-* wheels it needs, as pip lays out CUDA 13 builds; returns the torch folder."""
    nvidia = os.path.join(site_packages, "nvidia")
    build_nccl(os.path.join(nvidia, "nccl", "lib"), nccl)
    build_cudnn(os.path.join(nvidia, "cudnn", "lib"), cudnn)
    build_cudart(os.path.join(nvidia, "cu13", "lib"), cudart)
    build_cublas(os.path.join(nvidia, "cu13", "lib"), cublas)
    for name, version in (
        ("nvidia-nccl-cu13", nccl),
        ("nvidia-cudnn-cu13", cudnn + ".43"),
        ("nvidia-cuda-runtime", cudart + ".96"),
        ("nvidia-cublas", cublas + ".3"),
    ):
        write_dist_info(site_packages, name, version)
    requires = [f"nvidia-cudnn-cu13=={cudnn}.43", f"nvidia-nccl-cu13=={nccl}"]
    options: Dict[str, object] = {"search": search, "requires": requires, **(torch_options or {})}
    return build_torch(site_packages, torch, cuda=cudart, **options)  # type: ignore[arg-type]


def write_dist_info(
    site_packages: str, name: str, version: str, *, installer: str = "pip", requires: Sequence[str] = ()
) -> str:
    """An installed distribution's own record: METADATA, INSTALLER, RECORD."""
    folder = os.path.join(site_packages, f"{name.replace('-', '_')}-{version}.dist-info")
    os.makedirs(folder, exist_ok=True)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    lines = [f'Requires-Dist: {line}; platform_system == "Linux"\n' for line in requires]
    _write(os.path.join(folder, "METADATA"), head + "".join(lines))
    _write(os.path.join(folder, "INSTALLER"), installer + "\n")
    _write(os.path.join(folder, "RECORD"), f"{os.path.basename(folder)}/RECORD,,\n")
    return folder


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
