"""EA245 to EA248: distributions of one environment that do not go together."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest

from envaudit.model import Finding, Fingerprint, Section
from envaudit.rules import Evidence, judge
from tests.diff.nodes import fingerprint, package

TORCH = {"version": "2.14.0+cu130", "cuda": "13.0", "hip": None, "packaging": "wheel"}


def node(
    name: str = "node01",
    distributions: Optional[Dict[str, str]] = None,
    torch: Optional[Dict[str, Any]] = None,
    **sections: Any,
) -> Fingerprint:
    """A node with these distributions, installed by pip."""
    rows = {key: {"version": version, "installer": "pip"} for key, version in (distributions or {}).items()}
    whole: Dict[str, Any] = {"packages": {"distributions": rows, "duplicates": {}}, **sections}
    if torch is not None:
        whole["torch"] = torch
    return fingerprint(name, **whole)


def findings(*nodes: Fingerprint) -> List[Finding]:
    """What the rules of this subject say, and those of the libraries, which must not say it again."""
    found = judge(Evidence(tuple(nodes), comparing=False))
    return [each for each in found if each.rule.startswith(("EA23", "EA24", "EA20"))]


CU13 = {
    "nvidia-nccl-cu13": "2.29.7",
    "nvidia-cudnn-cu13": "9.20.0.48",
    "nvidia-cublas": "13.1.1.3",
    "nvidia-curand": "10.4.0.35",
    "nvidia-cuda-runtime": "13.0.96",
    "nvidia-ml-py": "13.580.65",
}


def test_one_stack_raises_nothing() -> None:
    """The wheels of CUDA 13, some without a suffix."""
    assert [] == findings(node(distributions=CU13, torch=TORCH))


def test_two_nccl_that_write_one_file_are_an_error() -> None:
    """The remedy: remove the one of the other CUDA, and install the right one again."""
    both = {"nvidia-nccl-cu12": "2.29.3", "nvidia-nccl-cu13": "2.29.7"}
    libraries = {
        "nccl": {"version": "2.29.3", "origin": "environment", "path": "{site}/nvidia/nccl/lib/libnccl.so.2"},
        "torch": {"built_with": {"nccl": "2.29.7"}},
    }
    nodes = [node(name, both, TORCH, libraries=libraries) for name in ("a", "b")]
    (finding,) = findings(*nodes)
    assert ("EA245", "error", ("a", "b")) == (finding.rule, finding.severity, finding.nodes)
    assert (
        "nvidia-nccl-cu12 2.29.3 and nvidia-nccl-cu13 2.29.7 are both installed and write the same files"
        == finding.message
    )
    assert (
        "Remove nvidia-nccl-cu12, then install nvidia-nccl-cu13 again: they have the same files."
        == finding.hint
    )


@pytest.mark.parametrize(
    ("more", "deep", "expected"),
    [
        # The same version for another CUDA.
        ({"nvidia-nccl-cu12": "2.29.7"}, None, "warning"),
        # Other folders: nvidia/cublas and nvidia/cu13, nvidia/curand and nvidia/cu13.
        ({"nvidia-cublas-cu12": "12.8.4.1"}, None, "warning"),
        ({"nvidia-curand-cu12": "10.3.9.90"}, None, "warning"),
        # Other files: libcudnn.so.8 and libcudnn.so.9.
        ({"nvidia-cudnn-cu11": "8.9.6.50"}, None, "warning"),
        ({"nvidia-cudnn-cu12": "9.10.2.21"}, None, "error"),
        ({"nvidia-cublas-cu12": "12.8.4.1"}, "ImportError: undefined symbol", "error"),
        ({"nvidia-nccl-cu12": "2.29.3"}, "ok", "warning"),
        ({"nvidia-cublas-cu12": "0.0.1.dev5"}, None, None),
        ({"nvidia-dali-cuda120": "1.40"}, None, None),
    ],
)
def test_two_stacks_are_as_bad_as_what_they_do(
    more: Dict[str, str], deep: Optional[str], expected: Optional[str]
) -> None:
    """An error where the import fails, or where two versions are in one place; else a warning."""
    sections: Dict[str, Any] = {} if deep is None else {"deep": {"import": deep}}
    found = findings(node(distributions={**CU13, **more}, torch=TORCH, **sections))
    assert ([] if expected is None else [("EA245", expected)]) == [
        (each.rule, each.severity) for each in found
    ]


def test_two_stacks_name_every_library_that_is_there_twice() -> None:
    """The worst first, the others below it."""
    more = {"nvidia-cublas-cu12": "12.8.4.1", "nvidia-nccl-cu12": "2.27.5"}
    (finding,) = findings(node(distributions={**CU13, **more}))
    assert ("nvidia-cublas 13.1.1.3 and nvidia-cublas-cu12 12.8.4.1",) == finding.evidence
    assert finding.message.startswith("nvidia-nccl-cu12 2.27.5 and nvidia-nccl-cu13 2.29.7")
    assert finding.hint.startswith("Keep the ones of the CUDA that torch was built for")


def test_two_stacks_of_cuda_12_keep_the_suffixed_ones() -> None:
    """Which of the two belongs to torch is what torch was built for."""
    torch = {**TORCH, "version": "2.9.1+cu128", "cuda": "12.8"}
    both = {"nvidia-cublas-cu12": "12.8.4.1", "nvidia-cublas": "13.1.1.3"}
    (finding,) = findings(node(distributions=both, torch=torch))
    assert "Remove nvidia-cublas." == finding.hint


@pytest.mark.parametrize("companion", ["torchvision", "torchaudio"])
def test_companion_of_another_build_is_an_error(companion: str) -> None:
    """By the tags that the packages' own files name."""
    torch = {**TORCH, companion: "0.29.0+cu126"}
    (finding,) = findings(node(torch=torch))
    assert ("EA246", "error", f"torch/{companion}") == (finding.rule, finding.severity, finding.path)
    assert f"torch 2.14.0+cu130 is built for cu130, and {companion} 0.29.0+cu126 for cu126" == finding.message
    assert f"Install both from one index: {companion}==0.29.0+cu130." == finding.hint


def test_companion_from_the_default_index_beside_a_tagged_torch_is_an_error() -> None:
    """A list of packages: the versions match, and only torch has a tag."""
    (finding,) = findings(node(distributions={"torch": "2.10.0+cu130", "torchvision": "0.25.0"}))
    assert ("EA246", "error", "packages/distributions/torchvision") == (
        finding.rule,
        finding.severity,
        finding.path,
    )
    assert "torch 2.10.0+cu130 is built for cu130, and torchvision 0.25.0 for cu128" == finding.message
    assert (
        "torchvision has no tag, as wheels of the default index: they are built for cu128",
    ) == finding.evidence


@pytest.mark.parametrize(
    ("torch", "vision"),
    [
        ({"version": "2.14.0+cu130", "cuda": "13.0"}, "0.29.0+cu130"),
        ({"version": "2.14.0+cpu", "cuda": None}, "0.29.0+cpu"),
        ({"version": "2.5.1+rocm6.2", "hip": "6.2.41133"}, "0.20.1+rocm6.2"),
        ({"version": "2.5.1+rocm6.2.4", "hip": "6.2.41133"}, "0.20.1+rocm6.2"),
        # conda's packages have no tag; a vendor's and a checkout's say nothing of the build.
        ({"version": "2.4.1", "cuda": "12.4", "packaging": "conda"}, "0.19.1"),
        ({"version": "2.2.1", "cuda": "12.1", "packaging": "conda"}, "0.17.1+cu121"),
        ({"version": "2.4.0a0+07cecf4168.nv24.5", "cuda": "12.4"}, "0.19.0a0"),
        ({"version": "2.10.0a0+git5c48869", "cuda": "13.0"}, "0.25.0a0+48b1edf"),
        # The default index has this very build.
        ({"version": "2.10.0+cu128", "cuda": "12.8"}, "0.25.0"),
        ({"version": "2.9.0+cu128", "cuda": "12.8"}, "0.24.0"),
        # Nobody says what the default index had.
        ({"version": "1.13.1+cu116", "cuda": "11.6"}, "0.14.1"),
        ({"version": "2.10.0+cu130", "cuda": "13.0"}, None),
        ({"version": None, "cuda": None}, "0.25.0+cu130"),
    ],
)
def test_companion_of_one_build_or_of_an_unknown_one_raises_nothing(
    torch: Dict[str, Any], vision: Optional[str]
) -> None:
    """Only two builds that are known are held against each other."""
    told = {"hip": None, "packaging": "wheel", "torchvision": vision, **torch}
    assert [] == [each for each in findings(node(torch=told)) if each.rule == "EA246"]


def test_companion_without_a_tag_is_not_guessed_at_on_other_machines() -> None:
    """The default index has other builds for ARM."""
    host = {"launch": "ssh", "architecture": "aarch64"}
    pair = {"torch": "2.10.0+cu130", "torchvision": "0.25.0"}
    assert [] == findings(node(distributions=pair, host=host))


def packages(duplicates: Dict[str, List[str]], twice: Dict[str, List[str]], **rows: Any) -> Section:
    """A section `packages` as the probe tells it."""
    facts: Dict[str, Any] = {"distributions": rows, "duplicates": duplicates}
    return Section("packages", 1, "ok", facts, {"twice_in_folder": twice} if twice else {})


def test_package_that_is_twice_in_one_folder_is_a_warning() -> None:
    """What a broken install leaves, on both nodes."""
    torn = packages({"numpy": ["2.3.1", "2.3.0"]}, {"numpy": ["2.3.1", "2.3.0"]})
    (finding,) = findings(*(fingerprint(name, packages=torn) for name in ("a", "b")))
    assert ("EA247", "warning", ("a", "b")) == (finding.rule, finding.severity, finding.nodes)
    assert ("numpy is twice in one folder", ("numpy: 2.3.1, 2.3.0",)) == (finding.message, finding.evidence)


def test_package_with_two_records_of_one_version_raises_nothing() -> None:
    """Debian installs a .dist-info and an .egg-info of one version into one folder."""
    system = packages({"cryptography": ["38.0.4", "38.0.4"]}, {"cryptography": ["38.0.4", "38.0.4"]})
    assert [] == findings(*(fingerprint(name, packages=system) for name in ("a", "b")))


def test_package_that_two_records_of_conda_name_is_a_warning() -> None:
    """Several are one finding."""
    two = {name: [package("1"), package("2")] for name in ("numpy", "scipy")}
    (finding,) = findings(node(conda={"packages": {}, "duplicates": two}))
    assert ("EA247", "2 packages are twice in conda's records") == (finding.rule, finding.message)
    assert ("numpy: 1, 2", "scipy: 1, 2") == finding.evidence


def test_package_that_lies_in_two_folders_raises_nothing() -> None:
    """A copy of pip's before the system's: sys.path is made for that."""
    row = {"version": "2.31.0", "installer": "pip"}
    assert [] == findings(fingerprint("n", packages=packages({"six": ["1.17", "1.16"]}, {}, six=row)))


def test_package_that_pip_put_beside_condas_is_told_once() -> None:
    """That is pip over conda, EA207, and no second finding."""
    torn = packages(
        {"numpy": ["2.3.1", "2.3.0"]},
        {"numpy": ["2.3.1", "2.3.0"]},
        numpy={"version": "2.3.1", "installer": "conda"},
    )
    conda = {"packages": {"numpy": package("2.3.1")}}
    assert ["EA207"] == [each.rule for each in findings(fingerprint("n", packages=torn, conda=conda))]


def test_package_of_the_users_site_that_hides_the_environments_is_a_warning() -> None:
    """With the version that it hides, and for all nodes on which it does."""
    row = {"version": "4.30.0", "installer": "pip", "user_site": True}
    told = packages({"transformers": ["4.30.0", "4.57.1"]}, {}, transformers=row)
    (finding,) = findings(*(fingerprint(name, packages=told) for name in ("a", "b")))
    assert ("EA248", "warning", ("a", "b")) == (finding.rule, finding.severity, finding.nodes)
    assert "transformers 4.30.0 comes from the user's site folder" == finding.message
    assert ("transformers 4.30.0, hides 4.57.1",) == finding.evidence


def test_package_of_the_users_site_that_hides_condas_is_told_once() -> None:
    """It lies in another folder than conda's: not pip over conda."""
    row = {"version": "2.2.0", "installer": "pip", "user_site": True}
    told = packages({"numpy": ["2.2.0", "2.3.1"]}, {}, numpy=row)
    conda = {"packages": {"numpy": package("2.3.1")}}
    assert ["EA248"] == [each.rule for each in findings(fingerprint("n", packages=told, conda=conda))]


@pytest.mark.parametrize(
    ("name", "row", "twice", "expected"),
    [
        ("torch", {"user_site": True}, False, 1),
        ("rich", {"user_site": True}, False, 0),
        ("numpy", {"folder": "/opt/shared/python"}, True, 1),
        # PYTHONPATH of a cluster's modules: that is how they come.
        ("numpy", {"folder": "/opt/shared/python"}, False, 0),
        # A checkout is where it is on purpose.
        ("trainer", {"folder": "/srv/trainer", "editable": True}, True, 0),
    ],
)
def test_package_from_outside_is_told_where_it_matters(
    name: str, row: Dict[str, Any], twice: bool, expected: int
) -> None:
    """Where it hides another, or where all nodes must have it alike and one user has his own."""
    duplicates = {name: ["1.0", "2.0"]} if twice else {}
    told = packages(duplicates, {}, **{name: {"version": "1.0", "installer": "pip", **row}})
    assert expected == len(findings(fingerprint("n", packages=told)))


@pytest.mark.parametrize(
    "facts",
    [
        {"distributions": [], "duplicates": 3},
        {"distributions": {"nvidia-nccl-cu12": 1, "nvidia-nccl-cu13": {"version": None}, "torch": "x"}},
        {"distributions": {"torch": {"version": 3, "user_site": True}}, "duplicates": {"torch": 4}},
    ],
)
def test_rules_of_stacks_take_any_shape(facts: Dict[str, Any]) -> None:
    """A node that answers nonsense ends no run."""
    told = Section("packages", 1, "ok", facts, {"twice_in_folder": {"x": 3, "y": [None, 4]}})
    one = fingerprint("n", packages=told, conda={"duplicates": {"a": 1}}, torch={"torchvision": 4})
    assert all(each.rule for each in findings(one))


@pytest.mark.parametrize(
    ("torch", "vision", "expected"),
    [
        ({"version": "2.2.1", "cuda": "12.1"}, "0.17.1+cu118", "cu121"),
        ({"version": "2.5.1", "cuda": None, "hip": "6.2.41133"}, "0.20.1+cpu", "rocm6.2"),
        ({"version": "2.5.1", "cuda": None}, "0.20.1+cu124", "cpu"),
    ],
)
def test_companion_is_held_against_what_an_untagged_torch_was_built_for(
    torch: Dict[str, Any], vision: str, expected: str
) -> None:
    """A torch of conda, whose own constants say it, under a torchvision that pip installed."""
    told = {"hip": None, "packaging": "conda", "torchvision": vision, **torch}
    (finding,) = findings(node(torch=told))
    built = vision.partition("+")[2]
    assert (
        f"torch {torch['version']} is built for {expected}, and torchvision {vision} for {built}"
        == finding.message
    )


def test_two_whole_stacks_are_one_finding_of_few_lines() -> None:
    """A dozen libraries twice: the first ones are named, the rest counted."""
    both = {f"nvidia-lib{number}{suffix}": "1.0" for number in range(12) for suffix in ("", "-cu12")}
    (finding,) = findings(node(distributions=both))
    assert "and 4 more libraries twice" == finding.evidence[-1]
