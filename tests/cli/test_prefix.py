"""`envaudit snapshot --prefix`: an environment read by another Python, nothing of it executed."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envaudit.probe import nvml, program
from envaudit.probe.context import Context, ProgramFailed
from envaudit.probe.loader import LoaderRules, ask, resolve_links
from envaudit.probe.loaderwalk import walk
from envaudit.probe.prefix import interpreter_of
from envaudit.probe.runner import probe
from envaudit.probe.sections import cuda
from tests.cli.conftest import Folder
from tests.conftest import PROJECT

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
MARK = "executed"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment, made by this interpreter's own venv."""
    prefix = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True, timeout=60)
    site = prefix / f"lib/python{MINOR}/site-packages"
    (site / "wheel_one-1.5.dist-info").mkdir()
    (site / "wheel_one-1.5.dist-info/INSTALLER").write_text("pip\n")
    return prefix


@pytest.fixture
def trap(environment: Path, tmp_path: Path) -> Path:
    """The file that would be there if anything of the environment ran: all that might is a trap."""
    mark = tmp_path / MARK
    site = environment / f"lib/python{MINOR}/site-packages"
    python = f"open({str(mark)!r}, 'w').close()\n"
    for name in ("sitecustomize.py", "usercustomize.py", "json.py", "re.py", "torch.py"):
        (site / name).write_text(python)
    (site / "evil.pth").write_text(f"import os; {python}")
    (site / "torch").mkdir()
    for name in ("__init__.py", "version.py"):
        (site / "torch" / name).write_text(f"__version__ = '2.7.0'\ncuda = None\n{python}")
    shell = f"#!/bin/sh\ntouch {mark}\n"
    (environment / "bin/python").unlink()
    for name in ("python", "python3", "git", "nvcc", "nvidia-smi", "chronyc", "conda", "ldconfig", "ip"):
        path = environment / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(shell)
        path.chmod(0o755)
    cached = site / "__pycache__"
    cached.mkdir(exist_ok=True)
    (cached / f"sitecustomize.cpython-{MINOR.replace('.', '')}.pyc").write_bytes(b"\0" * 64)
    return mark


def rows(answer: dict[str, Any]) -> dict[str, Any]:
    """The sections of an answer by name."""
    return {row["name"]: row for row in answer["sections"]}


def test_prefix_says_what_its_own_interpreter_says(environment: Path) -> None:
    """Read and started, an environment has the same packages, version and folders."""
    told = {}
    for name, request in (("read", {"prefix": str(environment)}), ("started", {})):
        code = (
            f"import sys, json; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r});"
            f"from envaudit.probe.runner import probe; print(json.dumps(probe({request!r})))"
        )
        python = environment / "bin/python" if name == "started" else sys.executable
        done = subprocess.run(
            [str(python), "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        told[name] = rows(json.loads(done.stdout))
    for section in ("packages", "conda", "torch"):
        assert told["started"][section]["facts"] == told["read"][section]["facts"]
    keys = ("version", "implementation", "prefix", "base_prefix", "soabi", "site_packages", "platform")
    started, read = (told[name]["python"]["facts"] for name in ("started", "read"))
    assert {key: started[key] for key in keys} == {key: read[key] for key in keys}
    assert (None, "no", "ok") == (read["flags"], read["started"], told["read"]["python"]["status"])
    assert sorted(told["started"]) == sorted(told["read"])


def test_nothing_of_a_hostile_prefix_is_executed(folder: Folder, environment: Path, trap: Path) -> None:
    """Neither its interpreter, nor modules, nor .pth lines, nor programs that PATH finds there."""
    ended = folder.run(
        "snapshot",
        *("--prefix", str(environment), "-o", "a.json"),
        PATH=f"{environment}/bin:{os.environ['PATH']}",
        LD_LIBRARY_PATH=f"{environment}/lib",
    )
    # Its torch has no library: that is told, and all else is read.
    assert (3, False) == (ended.code, trap.exists())
    assert "INCOMPLETE EA902" in ended.verdict
    shown = folder.run("show", "./a.json", "--section", "torch", "--format", "json").json
    assert "2.7.0" in json.dumps(shown["facts"])
    assert not trap.exists()


def test_driver_library_that_lies_in_the_prefix_is_not_loaded(environment: Path, tmp_path: Path) -> None:
    """On LD_LIBRARY_PATH it would come before the driver's own, and loading a library runs its code."""
    mark, source = tmp_path / MARK, tmp_path / "nvml.c"
    source.write_text(
        f'#include <fcntl.h>\n__attribute__((constructor)) void run(void) {{ creat("{mark}", 0600); }}\n'
    )
    library = environment / "lib/libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    code = (
        f"import sys, json; sys.path.insert(0, {str(PROJECT)!r});"
        "from envaudit.probe.runner import probe; request = {'sections': ['gpu'], 'prefix': sys.argv[1]};"
        "print(json.dumps(probe(request)))"
    )
    environ = {**os.environ, "LD_LIBRARY_PATH": f"/nowhere:{environment}/lib"}
    argv = [sys.executable, "-I", "-c", code, str(environment)]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=60)
    (row,) = json.loads(done.stdout)["sections"]
    assert (False, True) == (mark.exists(), row["status"] in ("absent", "ok", "partial"))
    context = Context(environ=environ, workdir="/", launch="local", interpreter={}, static=str(environment))
    says = f"{library}: lies in {environment}, of which nothing is executed"
    assert {"load_error": says, "absent": True} == nvml.listen(context, 1.0).system


def test_program_of_the_prefix_is_refused_and_its_libraries_kept_out(environment: Path, trap: Path) -> None:
    """By its path, by a link to it, and by PATH; what runs gets no LD_ or PYTHON variable."""
    environ = {
        "PATH": f"{environment}/bin:/usr/bin:/bin",
        "LD_PRELOAD": "x.so",
        "PYTHONPATH": "y",
        "LANG": "C",
    }
    kept = program.outside(str(environment), ["sh"], environ)
    assert {"PATH": "/usr/bin:/bin", "LANG": "C"} == kept
    link = environment.parent / "git"
    link.symlink_to(environment / "bin/git")
    context = Context(environ=environ, workdir="/", launch="local", interpreter={}, static=str(environment))
    for path in (environment / "bin/git", link):
        with pytest.raises(ProgramFailed, match="of which nothing is executed"):
            context.run([str(path)])
    assert not trap.exists()


def test_nvcc_of_the_prefix_is_named_and_not_run_and_that_is_no_fault(environment: Path, trap: Path) -> None:
    """An activated conda environment with a compiler is healthy: its version is not examined."""
    context = Context(
        environ={"PATH": f"{environment}/bin:/usr/bin"},
        workdir="/",
        launch="local",
        interpreter=interpreter_of(str(environment)),
        static=str(environment),
    )
    answer = cuda.read(context)
    nvcc = f"{environment}/bin/nvcc"
    assert ("ok", {"path": nvcc, "version": None}) == (answer.status, answer.facts["nvcc"])
    said = answer.notes["not_examined"]["version of nvcc"]
    assert f"{nvcc}: lies in {environment}, of which nothing is executed" == said
    assert not trap.exists()


def test_prefix_full_of_traps_for_a_reader_is_answered(environment: Path) -> None:
    """Loops of links, FIFOs, huge and torn files, names that are no text."""
    site = environment / f"lib/python{MINOR}/site-packages"
    (site / "loop").symlink_to(site / "loop")
    (site / "round").symlink_to(site)
    (site / "loop-1.0.dist-info").symlink_to(site / "loop-1.0.dist-info")
    os.mkfifo(site / "fifo.pth")
    (site / "wheel_two-1.0.dist-info").mkdir()
    os.mkfifo(site / "wheel_two-1.0.dist-info/INSTALLER")
    (site / "loop.pth").write_text("\0\n/nowhere\n" + "x" * 100000 + "\n..\n" * 500)
    (environment / "pyvenv.cfg").unlink()
    os.mkfifo(environment / "pyvenv.cfg")
    (environment / "conda-meta").mkdir()
    os.mkfifo(environment / "conda-meta/fifo-1-0.json")
    (environment / "conda-meta/loop-1-0.json").symlink_to("loop-1-0.json")
    with open(environment / "conda-meta/huge-1-0.json", "wb") as file:
        file.truncate(1 << 40)
    (Path(os.fsencode(site).decode()) / "torch").mkdir()
    (site / "torch/__init__.py").write_text("")
    os.mkfifo(site / "torch/version.py")
    names = ["conda", "packages", "python", "torch", "libraries", "integrity"]
    told = rows(probe({"prefix": str(environment), "sections": names, "deadline_s": 20}))
    assert sorted(names) == sorted(told)
    assert ("partial", "error") == (told["conda"]["status"], told["torch"]["status"])
    assert not any("not read within" in error for row in told.values() for error in row["errors"])


def test_path_lines_of_pth_files_are_followed_and_import_lines_are_not(environment: Path) -> None:
    """An editable project's folder is on the path of the interpreter, so it is on that of the reader."""
    project = environment.parent / "project"
    (project / "ours.egg-info").mkdir(parents=True)
    (project / "ours.egg-info/PKG-INFO").write_text("Name: ours\nVersion: 3.1\n\n")
    site = environment / f"lib/python{MINOR}/site-packages"
    (site / "__editable__.ours.pth").write_text(f"# comment\nimport os\n{project}\n/nowhere\n")
    assert str(project) in interpreter_of(str(environment))["path"]
    found = rows(probe({"prefix": str(environment), "sections": ["packages"]}))["packages"]["facts"]
    assert "3.1" == found["distributions"]["ours"]["version"]


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"include/python3.12/patchlevel.h": '#define PY_VERSION  "3.12.4"\n'}, "3.12.4"),
        ({"conda-meta/python-3.12.3-hab00c5b_0_cpython.json": "{}"}, "3.12.3"),
        ({"pyvenv.cfg": "home = /nowhere/bin\nversion_info = 3.12.2.final.0\n"}, "3.12.2"),
        ({"pyvenv.cfg": "home = /nowhere/bin\nversion = 3.12.1\n"}, "3.12.1"),
        ({"include/python3.12/patchlevel.h": "garbage"}, "3.12"),
    ],
)
def test_version_of_a_prefix_is_found_in_its_files(
    tmp_path: Path, files: dict[str, str], version: str
) -> None:
    """The header, conda's record, pyvenv.cfg; at last the folder's name."""
    for path, text in {"lib/python3.12/site-packages/x": "", **files}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert version == interpreter_of(str(tmp_path))["version"]


def test_prefix_on_nodes_is_read_by_their_python(folder: Folder, environment: Path, trap: Path) -> None:
    """The request carries it; three nodes are alike."""
    words = ("--all", "--prefix", str(environment), "--section", "packages", "--tag", "read")
    assert 0 == folder.ask("snapshot", *words).code
    assert 0 == folder.run("diff", "n[1-3]@read", "--section", "packages").code
    assert not trap.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--prefix", "environment"), "is no absolute path"),
        (("--prefix", "/x", "--deep"), "--deep imports torch"),
    ],
)
def test_prefix_that_cannot_be_meant_is_refused(folder: Folder, words: tuple[str, ...], says: str) -> None:
    """Before any node is asked."""
    ended = folder.ask("snapshot", "--all", *words)
    assert 2 == ended.code
    assert says in ended.err


def test_prefix_that_is_no_folder_is_refused(folder: Folder) -> None:
    """A mistyped path is told, not audited as an empty environment."""
    ended = folder.run("snapshot", "--prefix", "/nowhere/at/all")
    assert 2 == ended.code
    assert "/nowhere/at/all is no folder" in ended.err


def test_prefix_that_others_can_write_is_read_by_root(folder: Folder, environment: Path, trap: Path) -> None:
    """Nothing of it runs, so nothing is risked; started, it would be refused."""
    if os.geteuid() != 0:
        pytest.skip("only root refuses")
    site = environment / f"lib/python{MINOR}/site-packages"
    site.chmod(site.stat().st_mode | stat.S_IWOTH)
    assert 0 == folder.run("snapshot", "--prefix", str(environment), "--section", "packages").code
    assert not trap.exists()


def test_conda_environment_without_python_is_whole(folder: Folder, tmp_path: Path) -> None:
    """One of compilers or of R: there is no interpreter to miss."""
    prefix = tmp_path / "compilers"
    (prefix / "conda-meta").mkdir(parents=True)
    record = {"name": "gcc", "version": "13.2.0", "build": "0", "build_number": 0, "channel": "conda-forge"}
    (prefix / "conda-meta/gcc-13.2.0-0.json").write_text(json.dumps(record))
    ended = folder.run("snapshot", "--prefix", str(prefix), "--section", "python")
    assert (0, "") == (ended.code, ended.err)


def test_environment_whose_interpreter_is_gone_is_no_pass(folder: Folder, environment: Path) -> None:
    """Its links lead to a Python that was removed: nothing of it can be started."""
    for link in (environment / "bin").glob("python*"):
        link.unlink()
        link.symlink_to("/nowhere/python3")
    ended = folder.run("snapshot", "--prefix", str(environment), "--section", "python")
    assert (3, True) == (ended.code, "no interpreter that can be started" in ended.out)


def test_python_of_the_prefix_itself_is_no_reader(folder: Folder, environment: Path) -> None:
    """Whoever starts it has executed the environment already."""
    own = str(environment / "bin/python")
    ended = folder.run("snapshot", "--prefix", str(environment), "--python", own)
    assert 2 == ended.code
    assert "of which nothing is to be executed" in ended.err


def test_read_and_started_environment_differ_in_nothing(folder: Folder, environment: Path) -> None:
    """What only a start tells is not compared, and is no drift."""
    folder.run("snapshot", "--prefix", str(environment), "-o", "read.json")
    folder.run("snapshot", "--python", str(environment / "bin/python"), "-o", "started.json")
    ended = folder.run("diff", "./read.json", "./started.json", "--format", "json")
    assert [] == [finding for finding in ended.json["findings"] if finding["severity"] != "info"]
    assert 0 == ended.code


@pytest.fixture
def shared_objects(tmp_path: Path) -> Path:
    """libtop.so needs libmiddle.so needs libleaf.so, by RUNPATH, RPATH and nothing."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    folder = tmp_path / "objects"
    (folder / "deep").mkdir(parents=True)
    steps = (
        ("deep/libleaf.so", ()),
        ("libmiddle.so", (f"{folder}/deep/libleaf.so", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/deep")),
        ("libtop.so", (f"{folder}/libmiddle.so", "-Wl,--enable-new-dtags,-rpath,$ORIGIN")),
    )
    for name, words in steps:
        source = folder / "empty.c"
        source.write_text(f"int of_{len(name)}(void) {{ return 1; }}\n")
        soname = f"-Wl,-soname,{os.path.basename(name)},--no-as-needed"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", str(folder / name), str(source), soname, *words], check=True
        )
    return folder


def test_walk_of_the_rules_finds_what_the_loader_finds(shared_objects: Path) -> None:
    """The same file for every soname, without a process."""
    context = Context(environ=dict(os.environ), workdir="/", launch="local", interpreter={})
    program_file = resolve_links(context, sys.executable)
    top = str(shared_objects / "libtop.so")
    told = ask(context, program_file, [top])
    walked = walk(LoaderRules(context, program_file), program_file, [top])
    named = {name: os.path.realpath(path) for name, path in told.items() if path and "vdso" not in name}
    found = {name: os.path.realpath(path) for name, path in walked.items() if path and name in named}
    assert named == {name: path for name, path in {**found, **_loader(named)}.items() if name in named}
    assert str(shared_objects / "deep/libleaf.so") == walked["libleaf.so"]
    (shared_objects / "deep/libleaf.so").unlink()
    assert walk(LoaderRules(context, program_file), program_file, [top])["libleaf.so"] is None


def _loader(named: dict[str, str]) -> dict[str, str]:
    """The loader itself, which nothing needs by name on every system."""
    return {name: path for name, path in named.items() if name.startswith("ld-linux")}
