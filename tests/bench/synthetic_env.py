"""A synthetic conda environment of realistic size, for benchmarks and tests of the probe.

PROVENANCE: hand-made. Sizes follow environments of a CUDA build of PyTorch from conda-forge: most
records of conda-meta have 5 to 40 kB, some 100 kB, a few (Python, headers, a CUDA toolkit) more;
400 of them have about 10 MB. The layout is that of `conda list --json`'s source files:
`json.dumps(record, indent=2, sort_keys=True)`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any, Dict, List

_SHARE_OF_PYTHON = 3  # of 5 packages
_BYTES_PER_FILE = 430  # what one file takes in `files` and `paths_data`


def build_conda_env(path: str, packages: int = 400, python: str = sys.executable) -> str:
    """Make `path` a conda environment with that many packages; returns its interpreter.

    The interpreter is a link to `python`, made by its `venv`, so that its prefix is `path`. Three of
    five packages are Python distributions with a .dist-info folder beside their record.
    """
    # `--copies` would need the shared library of a relocated Python; a link does not.
    subprocess.run([python, "-m", "venv", "--symlinks", "--without-pip", path], check=True, timeout=60)
    interpreter = os.path.join(path, "bin", "python")
    asked = "import site; print(site.getsitepackages()[0])"
    site_packages = subprocess.run(
        [interpreter, "-c", asked], check=True, timeout=60, capture_output=True, text=True
    ).stdout.strip()
    meta = os.path.join(path, "conda-meta")
    os.makedirs(meta)
    for number in range(packages):
        name, version, build = f"package-{number:03d}", f"{number % 7}.{number % 13}.{number}", "py311h0_0"
        is_python = number % 5 < _SHARE_OF_PYTHON
        files = _files(name, _record_bytes(number) // _BYTES_PER_FILE, is_python)
        record = _record(name, version, build, files)
        with open(os.path.join(meta, f"{name}-{version}-{build}.json"), "w", encoding="ascii") as file:
            json.dump(record, file, indent=2, sort_keys=True)
        if is_python:
            _write_dist_info(site_packages, name, version, files)
    with open(os.path.join(meta, "history"), "w", encoding="ascii") as file:
        file.write("==> 2026-11-30 10:00:00 <==\n# cmd: conda env create -f environment.yml\n")
        file.write("# update specs: ['package-000', 'package-001[version=>=1]']\n")
    return interpreter


def _record_bytes(number: int) -> int:
    if number % 80 == 0:
        return 600_000
    if number % 20 == 0:
        return 100_000
    return 5_000 + number * 7919 % 25_000


def _files(name: str, count: int, is_python: bool) -> List[str]:
    folder = f"lib/python3.11/site-packages/{name.replace('-', '_')}" if is_python else f"share/{name}"
    return [f"{folder}/module_{number:05d}.py" for number in range(max(count, 3))]


def _record(name: str, version: str, build: str, files: List[str]) -> Dict[str, Any]:
    file_name = f"{name}-{version}-{build}.conda"
    digest = hashlib.sha256(file_name.encode("ascii")).hexdigest()
    paths = [
        {
            "_path": file,
            "path_type": "hardlink",
            "sha256": digest,
            "sha256_in_prefix": digest,
            "size_in_bytes": 1000 + index,
        }
        for index, file in enumerate(files)
    ]
    return {
        "arch": "x86_64",
        "build": build,
        "build_number": 0,
        "build_string": build,
        "channel": "https://conda.anaconda.org/conda-forge/linux-64",
        "constrains": [],
        "depends": ["libgcc >=13", "python >=3.11,<3.12.0a0", "python_abi 3.11.* *_cp311"],
        "extracted_package_dir": f"/opt/conda/pkgs/{name}-{version}-{build}",
        "features": "",
        "files": files,
        "fn": file_name,
        "license": "BSD-3-Clause",
        "link": {"source": f"/opt/conda/pkgs/{name}-{version}-{build}", "type": 1},
        "md5": digest[:32],
        "name": name,
        "package_tarball_full_path": f"/opt/conda/pkgs/{file_name}",
        "paths_data": {"paths": paths, "paths_version": 1},
        "platform": "linux",
        "requested_spec": "",
        "sha256": digest,
        "size": 1_000_000,
        "subdir": "linux-64",
        "timestamp": 1_700_000_000_000,
        "track_features": "",
        "url": f"https://conda.anaconda.org/conda-forge/linux-64/{file_name}",
        "version": version,
    }


def _write_dist_info(site_packages: str, name: str, version: str, files: List[str]) -> None:
    folder = os.path.join(site_packages, f"{name.replace('-', '_')}-{version}.dist-info")
    os.makedirs(folder)
    digest = "sha256=6Yh0dGkC0Zb3VbU3cQ3o1lJmJYFvzZtC0wq1n5bq3nE"
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n" + "A description.\n" * 200,
        "INSTALLER": "conda\n",
        "RECORD": "".join(
            f"{file[len('lib/python3.11/site-packages/') :]},{digest},1000\n" for file in files
        ),
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "direct_url.json": '{"dir_info": {}, "url": "file:///home/conda/feedstock_root/build_artifacts/x"}',
    }
    for file_name, text in texts.items():
        with open(os.path.join(folder, file_name), "w", encoding="ascii") as file:
            file.write(text)
