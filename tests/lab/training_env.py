"""What the nodes of the lab train in: one conda-like environment at one path, and an NVIDIA driver.

The environment is a real virtual environment with conda's own records beside it, pip's records,
and small libraries that really load. The driver is a small NVML that reads /etc/fakenvml.conf, so
that the library's path is the same on all nodes and its answers are each node's own.

PROVENANCE: hand-made after an environment of the pytorch and conda-forge channels (Python 3.11,
CUDA 13); hashes are sha256 and md5 of the file names.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, List, Tuple

from tests.lab.cluster import Cluster
from tests.probe import fakelibs, fakenvml

DRIVER = "580.95.05"
# What Python runs on a node at every start, where a test puts it there; the .pth file is all nodes' own.
START_CODE = "/etc/lab_start.py"

# name, version, build
_CONDA_PACKAGES: Tuple[Tuple[str, str, str], ...] = (
    ("_libgcc_mutex", "0.1", "conda_forge"),
    ("_openmp_mutex", "4.5", "2_gnu"),
    ("bzip2", "1.0.8", "h4bc722e_7"),
    ("ca-certificates", "2026.10.8", "hbd8a1cb_0"),
    ("ld_impl_linux-64", "2.44", "h1423503_1"),
    ("libblas", "3.9.0", "37_h4a7cf45_openblas"),
    ("libcblas", "3.9.0", "37_h0358290_openblas"),
    ("libexpat", "2.7.1", "hecca717_0"),
    ("libffi", "3.4.6", "h2dba641_1"),
    ("libgcc", "15.2.0", "h767d61c_7"),
    ("libgfortran", "15.2.0", "h69a702a_7"),
    ("libgomp", "15.2.0", "h767d61c_7"),
    ("liblapack", "3.9.0", "37_h47877c9_openblas"),
    ("liblzma", "5.8.1", "hb9d3cd8_2"),
    ("libopenblas", "0.3.30", "pthreads_h94d23a6_2"),
    ("libsqlite", "3.50.4", "h0c1763c_0"),
    ("libstdcxx", "15.2.0", "h8f9b012_7"),
    ("libuuid", "2.41.2", "he9a06e4_0"),
    ("libxcrypt", "4.4.36", "hd590300_1"),
    ("libzlib", "1.3.1", "hb9d3cd8_2"),
    ("ncurses", "6.5", "h2d0b736_3"),
    ("numpy", "2.3.4", "py311h2e04523_0"),
    ("openssl", "3.5.4", "h26f9b46_0"),
    ("pip", "25.2", "pyh8b19718_0"),
    ("python", "3.11.14", "hd63d673_1_cpython"),
    ("python_abi", "3.11", "8_cp311"),
    ("pyyaml", "6.0.3", "py311h3778330_0"),
    ("readline", "8.2", "h8c095d6_2"),
    ("setuptools", "80.9.0", "pyhff2d567_0"),
    ("tk", "8.6.13", "noxft_hd72426e_102"),
    ("tzdata", "2025b", "h78e105d_0"),
    ("wheel", "0.45.1", "pyhd8ed1ab_1"),
)

# Conda's Python packages bring dist-info as pip's do.
_CONDA_DISTRIBUTIONS = ("numpy", "pip", "pyyaml", "setuptools", "wheel")

_PIP_PACKAGES = (
    ("filelock", "3.20.0"),
    ("fsspec", "2025.10.0"),
    ("jinja2", "3.1.6"),
    ("markupsafe", "3.0.3"),
    ("mpmath", "1.3.0"),
    ("networkx", "3.5"),
    ("safetensors", "0.6.2"),
    ("sympy", "1.14.0"),
    ("triton", "3.5.1"),
    ("typing_extensions", "4.15.0"),
)


class TrainingEnvironment:
    """The environment of a cluster that is up, and the places in it that a test may replace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.prefix = cluster.environment_path
        lib = os.path.join(self.prefix, "lib")
        (python,) = (name for name in os.listdir(lib) if name.startswith("python3"))
        self.site_packages = os.path.join(lib, python, "site-packages")
        self.nvml_folder = os.path.join(cluster.folder, "nvml")

    @property
    def nccl(self) -> str:
        """The NCCL library that the environment's torch is linked with."""
        return os.path.join(self.site_packages, "nvidia", "nccl", "lib", "libnccl.so.2")

    @property
    def start_up(self) -> str:
        """A .pth file, whose import lines Python runs whenever it starts."""
        return os.path.join(self.site_packages, "distutils-precedence.pth")

    def conda_record(self, name: str) -> str:
        """The conda-meta file of a package."""
        version, build = next((v, b) for known, v, b in _CONDA_PACKAGES if known == name)
        return os.path.join(self.prefix, "conda-meta", f"{name}-{version}-{build}.json")

    def build(self) -> None:
        """Makes the environment, installs the driver, and sets the variables of an active environment."""
        self._build_conda()
        _write(self.start_up, f"import os; c = '{START_CODE}'; os.path.exists(c) and exec(open(c).read())\n")
        for name, version in _PIP_PACKAGES:
            fakelibs.write_dist_info(self.site_packages, name, version)
        fakelibs.build_stack(self.site_packages, cudart="13.0", nccl="2.27.7", cudnn="9.13.0")
        fakenvml.build(self.nvml_folder)
        for name in self.cluster.names:
            self.cluster.node(name).write("/etc/fakenvml.conf", driver_text(DRIVER))
        self.cluster.set_environment(
            {
                "CONDA_PREFIX": self.prefix,
                "CONDA_DEFAULT_ENV": "train",
                "LD_LIBRARY_PATH": self.nvml_folder,
                "NCCL_ALGO": "Ring,Tree",
                "NCCL_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "8",
            }
        )

    def rebuilt_record(self, name: str, build: str) -> str:
        """A conda-meta file of the same package and version in another build; returns its path."""
        version = next(v for known, v, _build in _CONDA_PACKAGES if known == name)
        path = os.path.join(self.cluster.folder, f"{name}-{version}-{build}.json")
        _write(path, json.dumps(_record(name, version, build)))
        return path

    def other_nccl(self, version: str) -> str:
        """Another NCCL, outside the environment; returns the library's path."""
        return fakelibs.build_nccl(os.path.join(self.cluster.folder, f"nccl-{version}"), version)

    def _build_conda(self) -> None:
        meta = os.path.join(self.prefix, "conda-meta")
        os.makedirs(meta)
        history: List[str] = [
            "==> 2026-11-02 09:14:51 <==",
            "# cmd: conda env create -n train -f environment.yml",
        ]
        for name, version, build in _CONDA_PACKAGES:
            record = _record(name, version, build)
            _write(os.path.join(meta, f"{name}-{version}-{build}.json"), json.dumps(record))
            history.append(f"+conda-forge/{record['subdir']}::{name}-{version}-{build}")
            if name in _CONDA_DISTRIBUTIONS:
                fakelibs.write_dist_info(self.site_packages, name, version, installer="conda")
        history.append('# update specs: ["numpy", "pip", "python=3.11", "pyyaml"]')
        _write(os.path.join(meta, "history"), "\n".join(history) + "\n")
        _write(os.path.join(meta, "pinned"), "numpy ==2.3.4\n")


def driver_text(version: str) -> str:
    """The text of an /etc/fakenvml.conf: eight healthy H100 under this driver."""
    return f"driver = {version}\n"


def _record(name: str, version: str, build: str) -> Dict[str, Any]:
    file_name = f"{name}-{version}-{build}.conda"
    subdir = "noarch" if build.startswith("py") and not build.startswith("py3") else "linux-64"
    channel = f"https://conda.anaconda.org/conda-forge/{subdir}"
    return {
        "name": name,
        "version": version,
        "build": build,
        "build_number": int(build.rpartition("_")[2]) if build.rpartition("_")[2].isdigit() else 0,
        "channel": channel,
        "subdir": subdir,
        "fn": file_name,
        "url": f"{channel}/{file_name}",
        "md5": hashlib.md5(file_name.encode(), usedforsecurity=False).hexdigest(),
        "sha256": hashlib.sha256(file_name.encode()).hexdigest(),
        "depends": [],
        "constrains": [],
        "files": [],
        "license": "BSD-3-Clause",
        "requested_spec": "",
        "size": 12345,
        "timestamp": 1760000000000,
    }


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
