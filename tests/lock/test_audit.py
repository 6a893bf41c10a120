"""What is found in a lock: each rule once where it fires and once where it must stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.lock.audit import lock_section
from envaudit.lock.gpubuilds import requests
from envaudit.lock.lockfile import Lock, LockedChannel, LockedPackage
from envaudit.lock.outcome import solve_section
from envaudit.model import Finding, Fingerprint
from envaudit.rules import Evidence, judge
from tests.lock.sources import CHANNEL, source_of

CUDA_11_4 = {
    "envaudit_channels": "[]",
    "envaudit_virtual_packages_linux-64": "__archspec=1=x86_64 __cuda=11.4 __glibc=2.28",
}


def conda(name: str, version: str = "1.0", build: str = "0", **more: object) -> LockedPackage:
    """A package of conda, whole and well."""
    given: dict[str, object] = {
        "url": f"{CHANNEL}/linux-64/{name}-{version}-{build}.conda",
        "md5": "0" * 32,
        "sha256": "0" * 64,
        **more,
    }
    return LockedPackage(name, version, "conda", "linux-64", **given)  # type: ignore[arg-type]


def pip(name: str, version: str = "1.0", **more: object) -> LockedPackage:
    """A package of pip, whole and well."""
    given: dict[str, object] = {
        "url": f"https://files.example/{name}-{version}-py3-none-any.whl",
        "sha256": "0" * 64,
        **more,
    }
    return LockedPackage(name, version, "pip", "linux-64", **given)  # type: ignore[arg-type]


PYTHON = conda("python", "3.10.14")


def findings(
    *packages: LockedPackage,
    source: object = None,
    custom: dict[str, str] | None = None,
    channel: str = CHANNEL,
    suggestions: dict[str, bool] | None = None,
) -> list[Finding]:
    """What the rules say to a lock of these packages, and to its source where there is one."""
    lock = Lock(
        "conda-lock.yml",
        {"linux-64": "aa"},
        (LockedChannel(channel),),
        ("linux-64",),
        ("environment.yml",),
        packages,
        custom or {},
    )
    sections = [lock_section(lock, [source] if source is not None else [])]  # type: ignore[list-item]
    sections.append(solve_section(suggestions=suggestions))
    fingerprint = Fingerprint("", "lock", "2026-11-30T10:00:00Z", "0", {each.name: each for each in sections})
    return list(judge(Evidence((fingerprint,), comparing=False)))


def told(found: list[Finding]) -> list[str]:
    """Rule and message of each finding."""
    return [f"{finding.rule} {finding.message}" for finding in found]


def test_lock_that_is_well_has_no_findings(tmp_path: Path) -> None:
    """Every spec met, closed, hashed, on one CUDA version."""
    source = source_of(tmp_path, "python=3.10", "numpy>=1.20", "numpy<2", "pip", pip=["tqdm>=4", "numpy"])
    numpy = conda("numpy", "1.26.4", dependencies={"python": ">=3.10,<3.11.0a0", "__glibc": ">=2.17"})
    pip_itself = conda("pip", "24.0", dependencies={"python": ">=3.8"})
    tqdm = pip("tqdm", "4.66.1", dependencies={"numpy": ">=1.20", "colorama-gone": "*"})
    whole = (PYTHON, numpy, pip_itself, tqdm, pip("colorama-gone"))
    assert [] == told(findings(*whole, source=source))


@pytest.mark.parametrize(
    ("lines", "fits"),
    [
        ([f"a==1.0 --hash=sha256:{'0' * 64}"], True),
        ([f"a==1.0 --hash=sha256:{'1' * 64} --hash=sha256:{'0' * 64}"], True),
        ([f"a==1.0 --hash=md5:{'1' * 32}"], True),
        ([f"a==1.0; os_name=='nt' --hash=sha256:{'1' * 64}", f"a --hash=sha256:{'0' * 64}"], True),
        ([f"a==1.0 --hash=sha256:{'1' * 64}"], False),
        ([f"a==1.0; os_name=='posix' --hash=sha256:{'1' * 64}"], False),
    ],
)
def test_file_of_another_hash_than_the_source_names_is_an_error(
    tmp_path: Path, lines: list[str], fits: bool
) -> None:
    """The resolver looks at no hash that a line names, and the lock would hold what the index has today."""
    found = findings(PYTHON, pip("a"), source=source_of(tmp_path, "python", pip=lines))
    expected = f"EA061 lock does not satisfy spec {lines[0]}: it has 1.0 of sha256 {'0' * 64} on linux-64"
    assert ([] if fits else [expected]) == [line for line in told(found) if line.startswith("EA061")]
    assert fits or "Name the hash of that file" in next(each.hint for each in found if each.rule == "EA061")


def test_lock_with_a_bound_without_end_is_judged() -> None:
    """A lock of another tool, or of somebody who means ill: Python reads no number of 5000 digits."""
    bound = f">={'9' * 5000}"
    packages = (PYTHON, conda("a", dependencies={"python": bound}), pip("b", dependencies={"b": bound}))
    assert ["EA062 a needs python"] == [line.partition(" >=")[0] for line in told(findings(*packages))]


@pytest.mark.parametrize(
    ("dependency", "locked", "fits"),
    [
        ("pip=24.0", conda("pip", "23.3.2"), False),
        ("pip=24.0", conda("pip", "24.0"), True),
        ("numpy>=1.26", conda("numpy", "1.24.4"), False),
        ("numpy=1.2", conda("numpy", "1.20.1"), False),
        ("numpy=1.2", conda("numpy", "1.2.3"), True),
        ("numpy==1.2", conda("numpy", "1.2.3"), False),
        ("numpy 1.2.*", conda("numpy", "1.2.3"), True),
        ("pytorch=2.0.1=*cuda*", conda("pytorch", "2.0.1", "py3.10_cuda11.8_cudnn8.7.0_0"), True),
        ("pytorch=2.0.1=*cuda*", conda("pytorch", "2.0.1", "py3.10_cpu_1"), False),
        ("h5py=*=mpi_mpich*", conda("h5py", "3.0", "mpi_mpich_1"), True),
        (f"{CHANNEL}::zlib", conda("zlib"), True),
        ("train::zlib", conda("zlib"), True),
        ("other::zlib", conda("zlib"), False),
        ("zlib", conda("libzlib"), False),
        ("numpy=1.26,<2", conda("numpy", "1.26.4"), True),
        (f"{CHANNEL}/linux-64/numpy-1.0-0.tar.bz2#{'0' * 32}", conda("numpy"), True),
        (f"{CHANNEL}/osx-64/numpy-1.0-0.conda", conda("numpy"), False),
        (f"{CHANNEL}/linux-64/numpy-1.0-1.conda", conda("numpy"), False),
        ("numpy=1.26,<1.26.3", conda("numpy", "1.26.4"), False),
        ("numpy=2.0|=1.26", conda("numpy", "1.26.4"), True),
        ("numpy=2.0|>=3", conda("numpy", "2.0.1"), True),
        ("numpy==1.26.*", conda("numpy", "1.26.4"), True),
        ("numpy==1.25.*|==1.24.*", conda("numpy", "1.26.4"), False),
        ("__cuda>=11", conda("numpy", "1.26.4"), True),
    ],
)
def test_spec_of_conda_is_held_against_the_locked_version(
    tmp_path: Path, dependency: str, locked: LockedPackage, fits: bool
) -> None:
    """By conda's own code, with the line of the spec."""
    found = findings(locked, source=source_of(tmp_path, dependency))
    places = [finding.path for finding in found if finding.rule == "EA061"]
    assert ([] if fits else [f"{tmp_path}/environment.yml:4:5"]) == places


@pytest.mark.parametrize(
    ("requirement", "locked", "fits"),
    [
        ("Tqdm>=4", pip("tqdm", "4.66.1"), True),
        ("tqdm==4.67", pip("tqdm", "4.66.1"), False),
        ("tqdm", conda("python"), False),
        ("torch==2.0.1", conda("pytorch", "2.0.1", dependencies={"python": ""}), True),
        ("torch==2.1", conda("pytorch", "2.0.1", dependencies={"python": ""}), False),
        ("tqdm ; sys_platform == 'win32'", conda("python"), True),
    ],
)
def test_requirement_of_pip_is_held_against_what_is_locked(
    tmp_path: Path, requirement: str, locked: LockedPackage, fits: bool
) -> None:
    """Also where conda provides it."""
    source = source_of(tmp_path, "python", pip=[requirement])
    rules = [finding.rule for finding in findings(conda("python"), locked, source=source)]
    assert ([] if fits else ["EA061"]) == [rule for rule in rules if rule == "EA061"]


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        ((conda("a", dependencies={"b": ""}),), "EA062 a needs b, which is not locked (linux-64)"),
        (
            (conda("a", dependencies={"b": ">=2"}), conda("b", "1.9")),
            "EA062 a needs b >=2, 1.9 is locked (linux-64)",
        ),
        (
            (conda("a", dependencies={"b": "0.1 conda_forge"}), conda("b", "0.1", "main")),
            "EA062 a needs b 0.1 conda_forge, 0.1 is locked (linux-64)",
        ),
        ((pip("a", dependencies={"b": "*"}),), "EA062 a needs b, which is not locked (linux-64)"),
        (
            (pip("a", dependencies={"b": ">=2"}), pip("b", "1.9")),
            "EA062 a needs b >=2, 1.9 is locked (linux-64)",
        ),
    ],
)
def test_lock_with_a_gap_is_not_closed(packages: tuple[LockedPackage, ...], message: str) -> None:
    """A dependency of a locked package must be locked, in a version that fits."""
    assert [message] == told(findings(*packages))


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        (conda("a", md5=None, sha256=None), ["EA063 a 1.0 has no hash (linux-64)"]),
        (pip("a", sha256=None), ["EA063 a 1.0 has no hash (linux-64)"]),
        (
            pip("a", sha256=None, url="git+https://git.example/a.git@main"),
            ["EA063 a 1.0 has no hash (linux-64)"],
        ),
        (pip("a", sha256=None, url=f"git+https://git.example/a.git@{'0' * 40}#subdirectory=x"), []),
    ],
)
def test_package_must_be_pinned_to_the_byte(package: LockedPackage, expected: list[str]) -> None:
    """By a hash, or a repository by a whole commit."""
    assert expected == told(findings(package))


@pytest.mark.parametrize(
    ("url", "fires"),
    [
        ("https://u:hunter2@conda.example/train", True),
        ("https://conda.example/t/hunter2/train", True),
        ("https://${USER}:${PASSWORD}@conda.example/train", False),
        ("https://conda.example/t/${TOKEN}/train", False),
    ],
)
def test_literal_credential_in_a_lock_is_named_by_its_place(url: str, fires: bool) -> None:
    """Never by what it is."""
    found = findings(conda("a", url=f"{url}/linux-64/a-1.0-0.conda"), channel=url)
    assert (["EA064", "EA064"] if fires else []) == [finding.rule for finding in found]
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("index", "url", "fires"),
    [
        ("https://i.example/aB3dE6gH9jK2mN5p/simple", "https://f.example/aB3dE6gH9jK2mN5p/a.whl", True),
        (f"https://i.example/priv/{'0b' * 24}/simple", f"https://i.example/priv/{'0b' * 24}/a.whl", True),
        ("https://i.example/simple", f"https://f.example/packages/aa/bb/{'0b' * 24}/a.whl", False),
        ("https://i.example/NexusPyPIGroup2024/simple", "https://i.example/NexusPyPIGroup2024/a.whl", False),
        ("https://i.example/Py3Torch2Cuda12Wheels/x", "https://i.example/Py3Torch2Cuda12Wheels/a.whl", False),
        (f"https://i.example/{'0b' * 20}/cu129", f"https://i.example/{'0b' * 20}/a.whl", False),
    ],
)
def test_token_in_the_path_of_the_users_index_is_not_locked(
    monkeypatch: pytest.MonkeyPatch, index: str, url: str, fires: bool
) -> None:
    """Nothing marks it as one but that it is random; a folder may be so by a hash or a commit."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", index)
    expected = ["EA064 the token of your package index in the URL of a (linux-64)"]
    assert (expected if fires else []) == told(findings(pip("a", url=url)))


def test_build_for_another_platform_is_an_error() -> None:
    """A package of osx-64 in the part for linux-64."""
    foreign = conda("a", url=f"{CHANNEL}/osx-64/a-1.0-0.conda")
    noarch = conda("b", url=f"{CHANNEL}/noarch/b-1.0-0.conda")
    assert ["EA065 a is a build for osx-64, locked for linux-64"] == told(findings(foreign, noarch))


def test_distribution_of_conda_and_pip_is_an_error_where_versions_differ() -> None:
    """A warning where they are the same."""
    numpy = conda("numpy", "1.26.4", dependencies={"python": ""})
    assert ["EA066 numpy: 1.26.4 from conda, 2.0 from pip (linux-64)"] == told(
        findings(PYTHON, numpy, pip("NumPy", "2.0"))
    )
    assert ["EA067 numpy: 1.26.4 from conda, 1.26.4 from pip (linux-64)"] == told(
        findings(PYTHON, numpy, pip("numpy", "1.26.4"))
    )


CPU = conda("pytorch", "2.0.1", "py3.10_cpu_1")
GPU = conda("pytorch", "2.0.1", "py3.10_cuda11.8_cudnn8.7.0_0")


@pytest.mark.parametrize(
    "asking", ["cudatoolkit=11.8", "pytorch-cuda=11.8", "cuda-version=12.6", "nccl", "cudnn=8"]
)
def test_cpu_build_beside_a_line_that_asks_for_cuda_is_an_error(tmp_path: Path, asking: str) -> None:
    """The finding stands at that line."""
    source = source_of(tmp_path, "pytorch=2.0.1", asking)
    name, _, version = asking.partition("=")
    found = findings(CPU, conda(name, version or "1.0"), source=source)
    places = [finding.path for finding in found if finding.rule == "EA080"]
    assert [f"{tmp_path}/environment.yml:5:5"] == places


@pytest.mark.parametrize(
    ("package", "dependency", "expected"),
    [
        (CPU, "pytorch", ["EA081"]),
        (CPU, "pytorch=*=*cpu*", []),
        (conda("pytorch", "2.6.0", "cpu_mkl_py310_h3d4f5b8_100"), "pytorch", ["EA081"]),
        (conda("pytorch", "2.1.0", "cpu_py310hb13e2d6_0"), "pytorch", ["EA081"]),
        (conda("tensorflow", "2.12", "mkl_py310h86_0"), "tensorflow", ["EA081"]),
        (GPU, "pytorch", []),
        (conda("pytorch", "2.6.0", "cuda126_mkl_py310_h8a6f1c2_300"), "pytorch", []),
        (conda("pyarrow", "12.0.1", "py310h19c1eb4_8_cpu"), "pyarrow", []),
        (conda("numpy", "1.26.4", "py310hb13e2d6_0"), "numpy", []),
    ],
)
def test_cpu_build_that_nobody_asked_for_is_a_warning(
    tmp_path: Path, package: LockedPackage, dependency: str, expected: list[str]
) -> None:
    """Where the solve assumed a GPU, and for what trains alone."""
    found = findings(package, source=source_of(tmp_path, dependency), custom=CUDA_11_4)
    assert expected == [finding.rule for finding in found]
    assert [] == findings(package, source=source_of(tmp_path, dependency))


@pytest.mark.parametrize(
    ("suggestions", "hint"),
    [
        ({}, "Ask for the build: pytorch=2.0.1=*cuda*, or pytorch-gpu on conda-forge."),
        ({"pytorch-gpu": False, "pytorch=*=*cuda*": True}, "Write pytorch=*=*cuda*: it solves."),
        (
            {"pytorch-gpu": False},
            "pytorch-gpu were tried and do not solve: these channels have no CUDA build that fits the other "
            "specs and virtual packages.",
        ),
    ],
)
def test_advice_on_a_cpu_build_says_whether_it_solves(
    tmp_path: Path, suggestions: dict[str, bool], hint: str
) -> None:
    """A suggestion that was tried is told with its result."""
    source = source_of(tmp_path, "pytorch", "cudatoolkit")
    found = findings(CPU, conda("cudatoolkit", "11.8.0"), source=source, suggestions=suggestions)
    assert [hint] == [finding.hint for finding in found if finding.rule == "EA080"]


def test_advice_on_a_cpu_build_names_the_way_to_a_newer_driver(tmp_path: Path) -> None:
    """The assumed CUDA is old: what the newest builds need is a word of the user's."""
    source, tried = source_of(tmp_path, "pytorch"), {"pytorch-gpu": False}
    (finding,) = findings(CPU, source=source, custom=CUDA_11_4, suggestions=tried)
    assert "driver serves a newer CUDA than 11.4, say so with --cuda VERSION." in str(finding.hint)


def test_cudatoolkit_that_nothing_depends_on_is_a_warning() -> None:
    """One that pytorch of old needs is none."""
    toolkit = conda("cudatoolkit", "11.8.0")
    old = conda("pytorch", "1.12.1", "py3.10_cuda11.8_0", dependencies={"cudatoolkit": ">=11.8,<11.9"})
    assert ["EA082 nothing depends on cudatoolkit 11.8.0 on linux-64"] == told(findings(toolkit))
    assert [] == told(findings(toolkit, old))


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ((conda("pytorch-cuda", "11.8"), conda("cuda-cudart", "11.8.89")), []),
        (
            (conda("pytorch-cuda", "11.8"), conda("cuda-nvrtc", "11.8.89"), conda("cuda-version", "12.5")),
            ["EA083 CUDA 12.5 (cuda-version 12.5) beside CUDA 11.8 (pytorch-cuda 11.8) on linux-64"],
        ),
        ((GPU, conda("cuda-version", "11.8")), []),
        (
            (GPU, conda("cuda-version", "12.6")),
            ["EA083 pytorch is built for CUDA 11.8, the lock has CUDA 12.6 on linux-64"],
        ),
        ((conda("nccl", "2.2", "cuda120_0"), conda("cuda-version", "12.9")), []),
        ((conda("x", "2.2", "cuda12_0"), conda("cuda-version", "12.9")), []),
        (
            (conda("x", "2.2", "cuda129_0"), conda("cuda-version", "12.6")),
            ["EA083 x is built for CUDA 12.9, the lock has CUDA 12.6 on linux-64"],
        ),
        ((pip("nvidia-cublas-cu12", "12.4.5.8"), pip("nvidia-cuda-runtime-cu12", "12.4.127")), []),
        (
            (pip("torch", "2.5.1+cu118"), pip("nvidia-cuda-runtime-cu12", "12.4.127")),
            ["EA083 torch is built for CUDA 11.8, the lock has CUDA 12.4 on linux-64"],
        ),
        (
            (pip("torch", "2.5.1+cu121"), pip("torchvision", "0.20.1+cu124")),
            ["EA083 torch for CUDA 12.1 beside torchvision for CUDA 12.4 on linux-64"],
        ),
        ((pip("torch", "2.5.1+cu121"), pip("torchvision", "0.20.1+cu121")), []),
        ((conda("pytorch", "2.9", "cuda126_0"), conda("torchvision", "0.25", "cuda129_0")), []),
        (
            (conda("pytorch", "2.0.1", "cuda118_0"), conda("torchvision", "0.25", "cuda129_0")),
            ["EA083 pytorch for CUDA 11.8 beside torchvision for CUDA 12.9 on linux-64"],
        ),
        ((conda("_pytorch_select", "2.0", "cuda_2"), conda("cuda-version", "11.8")), []),
    ],
)
def test_cuda_family_must_be_on_one_version(packages: tuple[LockedPackage, ...], expected: list[str]) -> None:
    """The toolkit's packages exactly; builds for an older minor version of the same major run."""
    assert expected == told(findings(*packages))


@pytest.mark.parametrize(
    ("dependencies", "pip_lines", "gpu", "cpu"),
    [
        (["cudatoolkit=11.8"], [], 1, 0),
        (["libcublas", "libcusparse-dev", "cudnn", "nccl", "dgl-cuda11.3"], [], 5, 0),
        (["libcurl", "libcups", "numpy", "nvidia-ml-py", "cuda-python"], [], 0, 0),
        (["pytorch=2.0.1=*cuda*"], [], 1, 0),
        (["pytorch=2.0.1=*cpu*", "cpuonly"], [], 0, 2),
        (["python"], ["torch==2.5.1+cu121"], 1, 0),
        (["python"], ["torch==2.5.1+cpu"], 0, 1),
        (["python"], ["--extra-index-url https://whl.example/whl/cu118", "torch"], 1, 0),
        (["python"], ["--extra-index-url https://whl.example/whl/cpu", "torch"], 0, 1),
        (["python"], ["./gpu-tools", "nvidia-cublas-cu12"], 1, 0),
    ],
)
def test_lines_that_ask_for_cuda_are_told_from_those_that_sound_like_it(
    tmp_path: Path, dependencies: list[str], pip_lines: list[str], gpu: int, cpu: int
) -> None:
    """A library of curl is none of CUDA."""
    asking, refusing = requests(source_of(tmp_path, *dependencies, pip=pip_lines).entries())
    assert (gpu, cpu) == (len(asking), len(refusing))
