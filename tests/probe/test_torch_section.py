"""torch read from its files: real layouts, damaged ones, and none."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.sections import libraries, torch
from envaudit.probe.torchfiles import Package, preloads_of, read_version
from tests.probe import fakelibs

MakeNode = Callable[..., Context]
SITE = "/env/lib/python3.11/site-packages"
INTERPRETER = {
    "executable": "/env/bin/python",
    "prefix": "/env",
    "base_prefix": "/env",
    "path": ["/env/lib/python3.11", SITE],
    "site_packages": [SITE],
}


def environment(prefix: Path) -> Context:
    """This machine, where the interpreter is of a new environment."""
    site = str(prefix / "site-packages")
    os.makedirs(site)
    interpreter = {"executable": sys.executable, "prefix": str(prefix), "base_prefix": "/usr"}
    interpreter.update(path=[site], site_packages=[site])  # type: ignore[arg-type]
    return Context(environ={}, workdir="/", launch="local", interpreter=interpreter)


def test_torch_of_a_wheel_tells_its_build(tmp_path: Path) -> None:
    """Annotated and plain constants of version.py, the wheel's record, the list in libtorch_python.so."""
    context = environment(tmp_path / "env")
    fakelibs.build_torch(context.interpreter["path"][0], "2.14.1+cu130")
    assert Answer(
        "ok",
        {
            "version": "2.14.1+cu130",
            "git_version": "5c4886908584029761b579af026dcfb627c84070",
            "cuda": "13.0",
            "hip": None,
            "debug": False,
            "packaging": "wheel",
            "place": "{site}/torch",
            "torchvision": None,
            "torchaudio": None,
            "architectures": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
        },
        {},
        [],
    ) == torch.read(context)


def test_torch_without_cuda_has_null_and_no_architectures(tmp_path: Path) -> None:
    """A CPU-only build is told by its null, not by anything that is missing."""
    context = environment(tmp_path / "env")
    fakelibs.build_torch(context.interpreter["path"][0], "2.13.0+cpu", cuda=None)
    answer = torch.read(context)
    assert ("ok", None, []) == (answer.status, answer.facts["cuda"], answer.facts["architectures"])


def test_torch_of_conda_is_told_by_its_installer(tmp_path: Path) -> None:
    """Conda writes its name as the installer of the distribution."""
    context = environment(tmp_path / "env")
    fakelibs.build_torch(context.interpreter["path"][0], "2.5.1", cuda="12.4", installer="conda")
    assert "conda" == torch.read(context).facts["packaging"]


VERSION_PY = "__version__ = '2.3.0'\ndebug = False\ncuda = None\ngit_version = 'abc'\nhip = None\n"


def test_torch_of_the_pytorch_channel_is_told_by_conda_meta(make_node: MakeNode) -> None:
    """An egg-info build without INSTALLER, recorded in conda-meta."""
    node = make_node(
        {
            f"{SITE}/torch/__init__.py": "",
            f"{SITE}/torch/version.py": VERSION_PY,
            f"{SITE}/torch-2.3.0-py3.11.egg-info/PKG-INFO": "",
            "/env/conda-meta/pytorch-2.3.0-py3.11_cuda12.1_cudnn8.9.2_0.json": "{}",
        },
        interpreter=INTERPRETER,
    )
    assert ("ok", "conda") == (torch.read(node).status, torch.read(node).facts["packaging"])


def test_torch_of_a_checkout_is_source(make_node: MakeNode) -> None:
    """A folder on sys.path without any record is a build from source; the place is absolute."""
    node = make_node(
        {"/src/pytorch/torch/__init__.py": "", "/src/pytorch/torch/version.py": VERSION_PY},
        interpreter={**INTERPRETER, "path": ["/src/pytorch", SITE]},
    )
    facts = torch.read(node).facts
    assert ("source", "/src/pytorch/torch") == (facts["packaging"], facts["place"])


@pytest.mark.parametrize(
    ("mapping", "place"),
    [
        ("MAPPING: dict[str, str] = {'x': '/x', 'torch': '/src/pytorch/torch'}", "/src/pytorch/torch"),
        ("MAPPING = {'torch': '/src/pytorch/torch'}", "/src/pytorch/torch"),
        ("MAPPING = {'torch': '/src/gone/torch'}", None),
        ("MAPPING = {'torch': 7}", None),
        ("MAPPING = {[]: '/src/pytorch/torch'}", None),
        ("MAPPING = {open('/x'): 1}", None),
        ("import sys", None),
    ],
)  # fmt: skip
def test_torch_of_an_editable_install_is_where_its_finder_has_it(
    make_node: MakeNode, mapping: str, place: Any
) -> None:
    """No folder of sys.path holds it: setuptools' finder does, whose table is read and not run."""
    files = {
        f"{SITE}/__editable___torch_2_6_0a0_finder.py": f"from x import y\n{mapping}\nNAMESPACES = {{}}\n",
        "/src/pytorch/torch/__init__.py": "",
        "/src/pytorch/torch/version.py": VERSION_PY,
    }
    answer = torch.read(make_node(files, interpreter=INTERPRETER))
    assert ("ok" if place else "absent", place) == (answer.status, answer.facts.get("place"))


def test_torch_companions_keep_their_local_tags(make_node: MakeNode) -> None:
    """Torchvision's tag comes from its version.py: its record's folder name has none."""
    node = make_node(
        {
            f"{SITE}/torch/__init__.py": "",
            f"{SITE}/torch/version.py": VERSION_PY,
            f"{SITE}/torchvision/__init__.py": "",
            f"{SITE}/torchvision/version.py": "__version__ = '0.18.0+cu121'\nimport torch\n",
            f"{SITE}/torchvision-0.18.0.dist-info/METADATA": "",
            f"{SITE}/torchaudio/__init__.py": "",
            f"{SITE}/torchaudio/version.py": "version = 1\n",
        },
        interpreter=INTERPRETER,
    )
    answer = torch.read(node)
    assert ("partial", "0.18.0+cu121", None) == (
        answer.status,
        answer.facts["torchvision"],
        answer.facts["torchaudio"],
    )
    assert [
        "torchaudio: /env/lib/python3.11/site-packages/torchaudio/version.py: defines no __version__"
    ] == list(answer.errors)


def test_torch_first_on_the_path_is_the_one(make_node: MakeNode) -> None:
    """Of two installed torches the one that import would take is read."""
    node = make_node(
        {
            "/first/torch/__init__.py": "",
            "/first/torch/version.py": VERSION_PY.replace("2.3.0", "2.1.0"),
            f"{SITE}/torch/__init__.py": "",
            f"{SITE}/torch/version.py": VERSION_PY,
        },
        interpreter={**INTERPRETER, "path": ["/first", SITE]},
    )
    assert "2.1.0" == torch.read(node).facts["version"]


def test_torch_that_is_not_installed_is_absent(make_node: MakeNode) -> None:
    """No package on sys.path: absent, and how many folders were searched."""
    assert Answer("absent", {}, {"searched": 2}) == torch.read(make_node({}, interpreter=INTERPRETER))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import os\n",
        "__version__ = \n",
        "\x00\x01\x02",
        "__version__ = 2.3\n",
        "(" * 5000,
        "__version__ = f'{1}'\n",
    ],
)
def test_torch_with_a_garbled_version_is_an_error(make_node: MakeNode, text: str) -> None:
    """A version.py that is cut short, binary, deeply nested or computed names the file; nothing is run."""
    node = make_node(
        {f"{SITE}/torch/__init__.py": "", f"{SITE}/torch/version.py": text}, interpreter=INTERPRETER
    )
    answer = torch.read(node)
    assert "error" == answer.status
    assert f"{SITE}/torch/version.py" in answer.errors[0]


def test_torch_that_may_not_be_read_is_an_error(make_node: MakeNode) -> None:
    """Permission denied on version.py is not an absent torch."""
    node = make_node(
        {f"{SITE}/torch/__init__.py": "", f"{SITE}/torch/version.py": VERSION_PY},
        interpreter=INTERPRETER,
        denied=[f"{SITE}/torch/version.py"],
    )
    answer = torch.read(node)
    assert "error" == answer.status
    assert "Permission denied" in answer.errors[0]


@pytest.mark.parametrize("section", [torch, libraries])
def test_torch_in_a_folder_that_may_not_be_read_is_an_error(make_node: MakeNode, section: Any) -> None:
    """A site folder that nobody may list proves nothing about torch."""
    node = make_node({f"{SITE}/torch/__init__.py": ""}, interpreter=INTERPRETER, denied=[SITE])
    answer = section.read(node)
    assert "error" == answer.status
    assert "Permission denied" in answer.errors[0]


@pytest.mark.parametrize(
    ("content", "cause"),
    [(b"", "no ELF file"), (b"\x7fELF" + bytes(8), "no ELF file"), (None, "architectures: no list in")],
    ids=["empty", "garbage", "missing"],
)
def test_torch_with_damaged_libraries_keeps_its_version(
    make_node: MakeNode, content: bytes, cause: str
) -> None:
    """Architectures that cannot be read are unknown, and what version.py says stands."""
    files = {
        f"{SITE}/torch/__init__.py": "",
        f"{SITE}/torch/version.py": VERSION_PY.replace("cuda = None", "cuda = '12.1'"),
    }
    if content is not None:
        files[f"{SITE}/torch/lib/libtorch_python.so"] = content  # type: ignore[assignment]
    answer = torch.read(make_node(files, interpreter=INTERPRETER))
    assert ("partial", "2.3.0") == (answer.status, answer.facts["version"])
    assert "architectures" not in answer.facts
    assert cause in answer.errors[0]


def test_torch_for_rocm_tells_gfx_targets(tmp_path: Path) -> None:
    """A HIP build's list has AMD's names, with their feature marks."""
    context = environment(tmp_path / "env")
    site = context.interpreter["path"][0]
    fakelibs.build_torch(site, "2.9.1+rocm6.4", cuda="12.4", architectures="gfx90a:xnack- gfx942 gfx1100")
    version = Path(site, "torch", "version.py")
    text = version.read_text().replace("cuda: Optional[str] = '12.4'", "cuda: Optional[str] = None")
    version.write_text(text.replace("hip: Optional[str] = None", "hip: Optional[str] = '6.4.43484'"))
    facts = torch.read(context).facts
    assert ("6.4.43484", ["gfx90a:xnack-", "gfx942", "gfx1100"]) == (facts["hip"], facts["architectures"])


def test_version_constants_of_real_statements_only(make_node: MakeNode) -> None:
    """Several targets, later assignments and values that are no constants."""
    node = make_node({"/p/version.py": "__version__ = a = '1.0'\nb: int = 3\nc = [1]\nd: str\nb = 4\n"})
    assert {"__version__": "1.0", "a": "1.0", "b": 4} == read_version(node, Package("/p", "/"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("pass", []),
        ("_preload_cuda_deps(required=False)", ["cublas", "cublas", "cudnn", "cuda_runtime", "nccl"]),
        ('_preload_cuda_lib("nvjitlink", "libnvJitLink.so.*[0-9]")', ["nvjitlink"]),
    ],
)
def test_preloads_are_read_from_the_text_of_torch(tmp_path: Path, body: str, expected: object) -> None:
    """None, all or the named libraries, as the release's own __init__.py has it; not its except branch."""
    context = environment(tmp_path / "env")
    site = context.interpreter["path"][0]
    package = Package(fakelibs.build_torch(site, preloads=body), site)
    assert expected == [folder for folder, _ in preloads_of(context, package)]
