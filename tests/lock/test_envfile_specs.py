"""conda's specs as people write them, to their parts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envaudit.lock.condaspec import BadSpec, CondaSpec, parse_spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("numpy", CondaSpec("numpy")),
        ("numpy=1.26", CondaSpec("numpy", "=1.26")),
        ("numpy==1.26.4", CondaSpec("numpy", "==1.26.4")),
        ("python >= 3.8", CondaSpec("python", ">=3.8")),
        ("python 3.11.*", CondaSpec("python", "3.11.*")),
        ("scipy   >=    1.5.0,  < 2.0.0", CondaSpec("scipy", ">=1.5.0,<2.0.0")),
        ("numpy                   >=1.21, !=1.24.0, <2.0", CondaSpec("numpy", ">=1.21,!=1.24.0,<2.0")),
        ("h5py                    =*=mpi_mpich*", CondaSpec("h5py", "=*", "mpi_mpich*")),
        ("pytorch>=2.7.0=cuda12*", CondaSpec("pytorch", ">=2.7.0", "cuda12*")),
        ("pytorch=2.0.1=py3.10_cuda11.8_cudnn8.7.0_0",
         CondaSpec("pytorch", "=2.0.1", "py3.10_cuda11.8_cudnn8.7.0_0")),
        ("python 3.10.* *_cpython", CondaSpec("python", "3.10.*", "*_cpython")),
        ("pytorch::pytorch-cuda=11.8", CondaSpec("pytorch-cuda", "=11.8", channel="pytorch")),
        ("conda-forge/linux-64::a=1", CondaSpec("a", "=1", channel="conda-forge/linux-64")),
        ("https://host/c::a", CondaSpec("a", channel="https://host/c")),
        ("a[version='>=1,<2', build=\"h_*\"]", CondaSpec("a", ">=1,<2", "h_*")),
        ("pyuvdata[casa]          >=2.4,<3", CondaSpec("pyuvdata", ">=2.4,<3", ignored="[casa]")),
        ("_libgcc_mutex=0.1=main", CondaSpec("_libgcc_mutex", "=0.1", "main")),
        ("jpeg=9d=h2bbff1b_0", CondaSpec("jpeg", "=9d", "h2bbff1b_0")),
        ("numpy 1.11|1.12", CondaSpec("numpy", "1.11|1.12")),
        ("https://host/linux-64/zlib-1.3-h1_0.conda#abc",
         CondaSpec("zlib", "==1.3", "h1_0", url="https://host/linux-64/zlib-1.3-h1_0.conda#abc")),
    ],
)  # fmt: skip
def test_spec_is_taken_apart(text: str, expected: CondaSpec) -> None:
    """Name, version, build and channel, with spaces where conda allows them."""
    assert expected == parse_spec(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("=1.0", "a package's name begins with"),
        ("@scope/x", "a package's name begins with"),
        ("a b c d", "more than a version and a build"),
        ("a >=", "'>=' is no version"),
        ("a =>1", "'=>1' is no version"),
        ("a >=1,,<2", "a version is missing in"),
        ("a[", "a bracket has no partner"),
        ("::a", "no channel before '::'"),
        ("numpy*", r"'\*' is in no package's name"),
        ("c++=1", r"'\+' is in no package's name"),
        ("a=*cuda*", r"'=\*cuda\*' is no version"),
        ("a>*", r"'>\*' is no version"),
        ("a 1.0 =py_0", "'=py_0' is no build"),
        ("python=<version>", "'=<version>' is no version"),
        ("pip install torch", "'install' is no version"),
        ("https://me:hunter2@host/c", "neither a channel's nor a package's"),
        ("https://host/linux-64/zlib.conda", "is called name-version-build.conda"),
    ],
)
def test_text_that_is_no_spec_is_refused_with_the_part_at_fault(text: str, complaint: str) -> None:
    """The complaint names what cannot be read."""
    with pytest.raises(BadSpec, match=complaint):
        parse_spec(text)


NAMES = st.sampled_from(["numpy", "_libgcc_mutex", "ruamel.yaml", "PyYAML", "gcc_linux-64", "numpy*", "c++"])
OPERATORS = st.sampled_from(["=", "==", ">=", "<=", ">", "<", "!=", "~="])
VERSIONS = st.sampled_from(
    ["1", "1.2.3", "1.2.*", "1.2*", "9d", "2023.08.22", "1!2.0", "1.0rc1", "main", "1_2", "1-2", "1.0+cu117"]
)
CLAUSES = st.tuples(OPERATORS, VERSIONS).map("".join)
CONSTRAINTS = st.one_of(
    st.just(""),
    st.lists(CLAUSES, min_size=1, max_size=3).map(",".join),
    st.lists(CLAUSES, min_size=1, max_size=2).map(" | ".join),
    st.tuples(st.sampled_from([" ", " = ", " >= "]), VERSIONS).map("".join),
)
BUILDS = st.sampled_from(["", "=py38_0", "=*cuda*", " py38_0", " *_cpython", " =py_0"])
CHANNELS = st.sampled_from(["", "conda-forge::", "pytorch/linux-64::", "https://h/c::"])


@settings(max_examples=400, deadline=None)
@given(st.tuples(CHANNELS, NAMES, CONSTRAINTS, BUILDS).map("".join))
def test_spec_that_is_taken_is_one_that_the_solver_takes(text: str) -> None:
    """With the same name and build; what is refused here may be taken there."""
    from rattler import MatchSpec

    try:
        spec = parse_spec(text)
    except BadSpec:
        return
    solver = MatchSpec(text, strict=False)
    assert (spec.name.lower(), spec.build) == (str(solver.name.normalized), str(solver.build or ""))
