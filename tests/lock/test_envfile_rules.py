"""Each rule over environment files: where it speaks, and where it must be silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.rules import all_rules
from envaudit.rules.sourcefacts import may_be_one
from tests.lock.envfiles import HEAD, judged, places_of, written

COMMIT = "4b41059694619831a7db195b7e0988fc4ff3a307"
PIP = HEAD + "  - pip\n  - pip:\n"
TORCH = "channels: [pytorch, nvidia]\ndependencies:\n"
MIRROR = "channels: [https://conda.example/train]\ndependencies:\n"
EXPORT = HEAD + "  - certifi=2022.12.7=py310haa95532_0\n  - vs2015_runtime\n"

# Rule, text, and the places where it speaks; none where it must be silent.
CASES: list[tuple[str, str, list[str]]] = [
    ("EA001", "dependencies: [a\n", ["2:1"]),
    ("EA001", HEAD + "  - a={{ v }}\n", ["3:7"]),
    ("EA001", HEAD + "  - a\n", []),
    ("EA002", "dependencies: [a]\ndependencies: [b]\n", ["2:1"]),
    ("EA002", HEAD + "  - a\n", []),
    ("EA003", HEAD + "  - a=>1\n", ["3:5"]),
    ("EA003", PIP + "    - a=1\n", ["5:7"]),
    ("EA003", PIP + "    - a==1\n", []),
    ("EA004", "dependancies: []\n" + HEAD + "  - a\n", ["1:1"]),
    ("EA004", "category: dev\n" + HEAD + "  - a\n", []),
    ("EA006", "platforms: [linux]\n" + HEAD + "  - a\n", ["1:13"]),
    ("EA006", HEAD + "  - a # [unix64]\n", ["3:5"]),
    ("EA006", "platforms: [linux-64]\n" + HEAD + "  - a # [linux64]\n", []),
    ("EA007", HEAD + "  - dask[complete]\n", ["3:5"]),
    ("EA007", HEAD + "  - dask[version='>=2']\n", []),
    ("EA008", "dependencies:\n", ["1:1"]),
    ("EA008", "dependencies: []\n", ["1:1"]),
    ("EA008", HEAD + "  - a\n", []),
    ("EA009", HEAD + "  - a\n  - b # [linux]\n  - c # [osx]\n", ["4:5"]),
    ("EA009", HEAD + "  - a # for Linux\n", []),
    ("EA010", HEAD + "  - numpy>=1.20\n  - a\n  - NumPy<2\n", ["5:5"]),
    ("EA010", PIP + "    - Flask_cors\n    - flask-cors==3\n", ["6:7"]),
    ("EA010", HEAD + "  - a=1 # [linux]\n  - a=2 # [win]\n", []),
    ("EA010", PIP + "    - -f x\n    - -f y\n", []),
    ("EA011", HEAD + "  - a\nprefix: /home/me/envs/x\n", ["4:9"]),
    ("EA011", HEAD + "  - a\n", []),
    ("EA012", EXPORT, ["3:5"]),
    ("EA012", "platforms: [win-64]\n" + EXPORT, []),
    ("EA012", HEAD + "  - certifi=2022.12.7=py310h06a4308_0\n", []),
    ("EA012", HEAD + "  - clang_osx-arm64\n", ["3:5"]),
    ("EA012", HEAD + "  - clang_osx-arm64  # [arm64]\n  - ld_impl_linux-64\n", []),
    ("EA012", PIP + "    - pywin32==227\n", ["5:7"]),
    ("EA012", PIP + "    - pywin32==227; sys_platform == 'win32'\n", []),
    ("EA013", "channels: ['https://me:pw@h/c']\ndependencies: [a]\n", ["1:12"]),
    ("EA013", "channels: ['https://h/t/${TOKEN}/c']\ndependencies: [a]\n", []),
    ("EA013", "variables:\n  WANDB_API_KEY: 0123456789abcdef\n" + HEAD + "  - a\n", ["2:18"]),
    ("EA013", PIP + "    - git+https://oauth2:tok@h/x.git@" + COMMIT + "\n", ["5:7"]),
    ("EA013", PIP + "    - git+ssh://git@h/x.git@" + COMMIT + "\n", []),
    ("EA014", "channels: [conda-forge, defaults]\ndependencies: [a]\n", ["1:25"]),
    ("EA014", "channels: [conda-forge, nodefaults]\ndependencies: [a]\n", []),
    ("EA014", "channels: [pytorch, defaults]\ndependencies: [a]\n", []),
    ("EA015", "dependencies: [a]\n", ["1:1"]),
    ("EA015", "dependencies: ['conda-forge::a']\n", []),
    ("EA020", PIP + "    - a\n  - pip:\n    - b\n", ["6:5"]),
    ("EA020", PIP + "    - a\n    - b\n", []),
    ("EA021", HEAD + "  - pip:\n    - a\n", ["3:5"]),
    ("EA021", PIP + "    - a\n", []),
    ("EA021", HEAD + "  - a\n", []),
    ("EA022", PIP + "    - -r no.txt\n", ["5:7"]),
    ("EA022", PIP + "    - a\n", []),
    ("EA023", PIP + "    - --extra-index-url https://h/simple\n", ["5:7"]),
    ("EA023", PIP + "    - -f https://h/list.html\n", ["5:7"]),
    ("EA023", PIP + "    - --prefer-binary\n", []),
    ("EA024", PIP + "    - git+https://h/x.git\n", ["5:7"]),
    ("EA024", PIP + "    - x @ git+https://h/x.git@v1.0\n", ["5:7"]),
    ("EA024", PIP + "    - x @ git+https://h/x.git@" + COMMIT[:12] + "\n", ["5:7"]),
    ("EA024", PIP + "    - git+https://h/x.git@" + COMMIT + "#subdirectory=python\n", []),
    ("EA024", PIP + "    - https://github.com/a/b/archive/master.zip\n", ["5:7"]),
    ("EA024", PIP + "    - https://github.com/a/b/archive/refs/heads/main.tar.gz\n", ["5:7"]),
    ("EA024", PIP + "    - https://github.com/a/b/archive/v1.2.zip\n", []),
    ("EA024", PIP + "    - https://github.com/a/b/archive/" + COMMIT + ".zip\n", []),
    ("EA025", PIP + "    - -e .\n    - ./x\n    - file:///srv/x.whl\n", ["5:7", "6:7", "7:7"]),
    ("EA025", PIP + "    - x\n", []),
    ("EA026", PIP + "    - x @ https://h/x-1.0.tar.gz\n", ["5:7"]),
    ("EA026", PIP + "    - x @ https://h/x-1.0.tar.gz#sha256=ab\n", []),
    ("EA026", PIP + "    - https://github.com/a/b/archive/master.zip\n", []),
    ("EA027", HEAD + "  - pip\n  - a=1.0\n  - pip:\n    - a==1.1\n", ["6:7"]),
    ("EA027", HEAD + "  - pip\n  - pytorch=2.0.1\n  - pip:\n    - torch==2.1.0\n", ["6:7"]),
    ("EA027", HEAD + "  - pip\n  - a=1.0\n  - pip:\n    - a==1.0.3\n", []),
    ("EA027", HEAD + "  - pip\n  - a>=1.0\n  - pip:\n    - a==1.1\n", []),
    ("EA027", HEAD + "  - pip\n  - a=1.0 # [osx]\n  - pip:\n    - a==1.1 # [linux]\n", []),
    ("EA028", HEAD + "  - pip\n  - typing_extensions\n  - pip:\n    - typing-extensions==4.3\n", ["6:7"]),
    ("EA028", HEAD + "  - pip\n  - dask\n  - pip:\n    - dask\n", ["6:7"]),
    ("EA028", HEAD + "  - pip\n  - dask-core\n  - pip:\n    - dask\n", []),
    ("EA028", HEAD + "  - pip\n  - a=1.0\n  - pip:\n    - a==1.1\n", []),
    ("EA029", PIP + "    - --pre\n", ["5:7"]),
    ("EA029", PIP + "    - --only-binary=:all:\n", []),
    ("EA030", HEAD + "  - pytorch\n", ["3:5"]),
    ("EA030", HEAD + "  - pytorch>=2.6\n", ["3:5"]),
    ("EA030", HEAD + "  - pytorch=2.6\n", ["3:5"]),
    ("EA030", HEAD + "  - pytorch>=2.6=*cuda12*\n", []),
    ("EA030", HEAD + "  - pytorch=2.6=*cpu*\n", []),
    ("EA030", HEAD + "  - pytorch=2.6\n  - pytorch-gpu\n", []),
    ("EA030", TORCH + "  - pytorch=2.1\n  - pytorch-cuda=11.8\n", []),
    ("EA030", TORCH + "  - pytorch\n  - pytorch-cuda=11.8\n", ["3:5"]),
    ("EA030", TORCH + "  - pytorch=2.1\n  - cpuonly\n", []),
    ("EA030", TORCH + "  - pytorch=1.12.1\n  - cudatoolkit=11.6\n", []),
    ("EA030", TORCH + "  - pytorch=2.1\n  - pytorch-cuda\n", ["4:5"]),
    ("EA030", "platforms: [osx-arm64]\n" + HEAD + "  - pytorch\n", []),
    ("EA030", PIP + "    - torch\n", ["5:7"]),
    ("EA030", PIP + "    - torch>=2\n", ["5:7"]),
    ("EA030", PIP + "    - torch==2.5.1\n", []),
    ("EA031", TORCH + "  - pytorch=2.0.1\n  - cudatoolkit=11.8\n", ["4:5"]),
    ("EA031", TORCH + "  - pytorch\n  - cudatoolkit=11.8\n", ["4:5"]),
    ("EA031", TORCH + "  - pytorch>=1.10\n  - cudatoolkit=11.8\n", ["4:5"]),
    ("EA031", MIRROR + "  - pytorch=2.0.1\n  - cudatoolkit=11.8\n", ["4:5"]),
    ("EA031", TORCH + "  - pytorch<1.13\n  - cudatoolkit=11.6\n", []),
    ("EA031", TORCH + "  - pytorch<=1.13\n  - cudatoolkit=11.6\n", ["4:5"]),
    ("EA031", TORCH + "  - pytorch=1.9\n  - cudatoolkit=11.1\n", []),
    ("EA031", HEAD + "  - pytorch=2.0.1\n  - cudatoolkit=11.8\n", []),
    ("EA031", HEAD + "  - cudatoolkit=11.8\n  - cudnn\n", []),
    ("EA032", TORCH + "  - pytorch=2.1\n  - pytorch-cuda=11.8\n  - cpuonly\n", ["5:5"]),
    ("EA032", HEAD + "  - pytorch=2.6=cpu_mkl*\n  - cuda-version=12.6\n", ["3:5"]),
    ("EA032", PIP + "    - torch==2.5.1+cpu\n    - torchvision==0.20.1+cu124\n", ["5:7"]),
    ("EA032", HEAD + "  - pytorch=2.6=cpu_mkl*\n", []),
    ("EA033", TORCH + "  - pytorch-cuda=11.8\n  - cuda-version=12.5\n", ["4:5"]),
    ("EA033", PIP + "    - torch==2.4.0+cu121\n    - torchvision==0.19.0+cu118\n", ["6:7"]),
    ("EA033", PIP + "    - --extra-index-url https://h/whl/cu117\n    - torch==2.0.1+cu118\n", ["6:7"]),
    ("EA033", HEAD + "  - pip\n  - pytorch=2.1=py3.10_cuda11.8*\n  - pip:\n    - cupy-cuda12x\n", ["6:7"]),
    ("EA033", TORCH + "  - pytorch=2.1=*cuda12*\n  - cuda-version=12.5\n", []),
    ("EA033", PIP + "    - torch==1.13.1+cu117\n    - torch-sparse==0.6.16+pt113cu117\n", []),
    ("EA033", PIP + "    - torch==1.13.1+cu117\n    - cuml-cu11\n", []),
    ("EA033", TORCH + "  - cuda-version>=11.8\n  - pytorch-cuda=12.4\n", []),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text", "places"), CASES)
def test_rule_speaks_at_its_places_alone(tmp_path: Path, rule: str, text: str, places: list[str]) -> None:
    """A finding at each place, none where the file is fine."""
    assert places == places_of(tmp_path, text, rule)


@pytest.mark.parametrize(
    ("conda", "pip", "expected"),
    [("=2.1", "==2.1.3", True), ("=2.1.3", "==2.1", False), ("==2.1", "==2.1.3", False),
     ("==2.1", "==2.1.0", True), ("=2", "==2", True), ("2.1.*", "==2.1.9", True), ("2.1", "==2.1.1", False),
     ("=2.1", "==2.*", True), ("=2.1", "==2.2.*", False), ("==2.1.1", "==2.1.*", True),
     ("=2.0.1", "==2.0.1+cu118", True), ("=2.0", "==2.0rc1", False), (">=2", "==1", True), ("", "==1", True)],
)  # fmt: skip
def test_two_constraints_may_be_met_by_one_version(conda: str, pip: str, expected: bool) -> None:
    """As far as exact versions tell; ranges are left to the solver."""
    assert expected == may_be_one(conda, pip)


def test_encoding_other_than_utf8_is_told(tmp_path: Path) -> None:
    """UTF-16 is read, and conda could not; a byte order mark of UTF-8 harms nobody."""
    text = HEAD + "  - a\n"
    assert ["1:1"] == places_of(tmp_path, b"\xff\xfe" + text.encode("utf-16-le"), "EA005")
    assert [] == places_of(tmp_path, b"\xef\xbb\xbf" + text.encode(), "EA005")


def test_every_rule_over_environment_files_has_both_cases() -> None:
    """One where it speaks and one where it is silent."""
    rules = {rule.id for rule in all_rules() if "envfile" in rule.needs} - {"EA005"}
    assert rules == {rule for rule, _, places in CASES if places}
    assert rules == {rule for rule, _, places in CASES if not places}


def test_file_without_fault_has_no_findings(tmp_path: Path) -> None:
    """A whole training environment as it should be written."""
    text = (
        "name: train\nchannels: [conda-forge, nodefaults]\nplatforms: [linux-64]\ndependencies:\n"
        "  - python=3.12\n  - pytorch=2.6.0=*cuda126*\n  - cuda-version=12.6\n  - numpy>=1.26,<3\n  - pip\n"
        f"  - pip:\n    - wandb==0.19.0\n    - x @ git+https://h/x.git@{COMMIT}\n"
    )
    assert [] == judged(written(tmp_path, text))


def test_toolkit_that_is_not_used_gets_a_pin_that_chooses_the_build(tmp_path: Path) -> None:
    """The advice is what to write, and what to take out."""
    (finding,) = judged(written(tmp_path, TORCH + "  - pytorch=2.0.1\n  - cudatoolkit=11.8.0\n"))
    assert ("EA031", "pytorch=2.0.1 does not use cudatoolkit=11.8.0: the CPU build meets both") == (
        finding.rule,
        finding.message,
    )
    assert (
        "Write pytorch=2.0.1=*cuda11.8*, or add pytorch-cuda=11.8 where the channel has it,"
        " and take cudatoolkit out."
    ) == finding.hint


@pytest.mark.parametrize(
    ("asked", "pin"),
    [
        ("pytorch", "pytorch=2.5.1=*cuda*"),
        ("pytorch=2.6", "pytorch=2.6=*cuda*"),
        ("pytorch>=2.6", "pytorch >=2.6 *cuda*"),
        ("pytorch >=2.6,<3", "pytorch >=2.6,<3 *cuda*"),
    ],
)
def test_open_build_gets_a_pin_that_keeps_the_version_asked_for(tmp_path: Path, asked: str, pin: str) -> None:
    """A range stays, and what is advised is no open build."""
    (finding,) = judged(written(tmp_path, f"{HEAD}  - {asked}\n"))
    assert ("EA030", f"Write {pin}, or") == (finding.rule, str(finding.hint)[: len(pin) + 10])
    assert [] == judged(written(tmp_path, f"{HEAD}  - {pin}\n"))


def test_floating_reference_gets_the_command_that_names_the_commit(tmp_path: Path) -> None:
    """Quoted for a shell: a URL is the file's, not ours."""
    text = PIP + "    - git+https://h/x.git@a;b\n"
    (finding,) = judged(written(tmp_path, text))
    assert "Write @ and the 40 digits that 'git ls-remote https://h/x.git 'a;b'' gives." == finding.hint


def test_lines_of_dropped_sections_are_counted(tmp_path: Path) -> None:
    """What conda would leave out in silence, in a number."""
    (finding,) = judged(written(tmp_path, PIP + "    - a\n    - b\n  - pip:\n    - c\n  - pip:\n    - d\n"))
    assert ("3 pip sections: conda would drop 3 lines of them", ("they begin in lines 4, 7, 9",)) == (
        finding.message,
        finding.evidence,
    )
