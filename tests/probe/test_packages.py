"""Python distributions, in every form in which installers leave them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.distributions import normalise
from envaudit.probe.sections import packages

MakeNode = Callable[..., Context]
SITE = "/env/lib/python3.11/site-packages"


def read(make_node: MakeNode, files: Dict[str, str], **interpreter: Any) -> Answer:
    """The section of a node whose site folder holds these files; absolute paths lie elsewhere."""
    placed = {path if path.startswith("/") else f"{SITE}/{path}": text for path, text in files.items()}
    told = {"prefix": "/env", "base_prefix": "/env", "path": [SITE], **interpreter}
    return packages.read(make_node(placed, interpreter=told))


def direct_url(**keys: Any) -> str:
    """A direct_url.json."""
    return json.dumps(keys)


@pytest.mark.parametrize(
    ("files", "name", "version"),
    [
        ({"torch-2.1.0+cu121.dist-info/METADATA": ""}, "torch", "2.1.0+cu121"),
        ({"zope.interface-5.5.2.dist-info/METADATA": ""}, "zope-interface", "5.5.2"),
        ({"Foo_Bar-1!2.0rc1.post3.dev4.dist-info/METADATA": ""}, "foo-bar", "1!2.0rc1.post3.dev4"),
        ({"PyYAML-6.0.egg-info/PKG-INFO": ""}, "pyyaml", "6.0"),
        ({"six-1.16.0-py3.11.egg-info": "Name: six\n"}, "six", "1.16.0"),
        ({"lxml-4.9-py3.11-linux-x86_64.egg/EGG-INFO/PKG-INFO": ""}, "lxml", "4.9"),
        ({"odd.dist-info/METADATA": "Name: Odd.Name\nVersion: 3\n\nVersion: 9\n"}, "odd-name", "3"),
        ({"my-pkg-1.0.dist-info/METADATA": "Name: my-pkg\nVersion: 1.0\n"}, "my-pkg", "1.0"),
        ({"x-1.0_1.dist-info/METADATA": "Name: x\nVersion: 1.0-1\n"}, "x", "1.0-1"),
        ({"only.egg-info/PKG-INFO": "Name: only\nVersion: 2\n"}, "only", "2"),
        ({"nameless.dist-info/METADATA": "\n"}, "nameless", None),
    ],
)
def test_distribution_in_each_form_is_found(
    make_node: MakeNode, files: Dict[str, str], name: str, version: str | None
) -> None:
    """Wheels, eggs, old distutils and odd folder names give a normalised name and a whole version."""
    answer = read(make_node, files)
    assert {name: version} == {key: one["version"] for key, one in answer.facts["distributions"].items()}
    assert "ok" == answer.status


def test_record_that_a_removal_left_does_not_hide_the_version_that_is_there(make_node: MakeNode) -> None:
    """A folder without METADATA beside one that has it: nobody can import what it names."""
    left = {"torch-2.1.0.dist-info/notes.txt": "mine"}
    answer = read(make_node, {**left, "torch-2.2.0.dist-info/METADATA": ""})
    assert "2.2.0" == answer.facts["distributions"]["torch"]["version"]
    assert ({}, None) == (answer.facts["duplicates"], answer.notes.get("twice_in_folder"))


@pytest.mark.parametrize("cut", [0, 40])
def test_distribution_in_an_archive_on_the_path_is_found(make_node: MakeNode, cut: int) -> None:
    """Python imports from it; what only looks like an archive is none."""
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as archive:
        archive.writestr("tool-3.1.dist-info/METADATA", "Name: tool\nVersion: 3.1\n")
        archive.writestr("tool/__init__.py", "")
    node = make_node(
        {"/srv/tool.zip": kept.getvalue()[: -cut or None]},
        interpreter={"prefix": "/env", "base_prefix": "/env", "path": ["/srv/tool.zip", "/srv/gone.zip"]},
    )
    answer = packages.read(node)
    row = {"version": "3.1", "installer": None, "folder": "/srv/tool.zip"}
    assert ("ok", {} if cut else {"tool": row}) == (answer.status, answer.facts["distributions"])


def test_pipe_on_the_path_is_no_archive_and_not_waited_for(make_node: MakeNode) -> None:
    """To open one for reading would last until somebody writes."""
    node = make_node(
        {"/srv/x": ""}, interpreter={"prefix": "/env", "base_prefix": "/env", "path": ["/srv/tool.zip"]}
    )
    os.mkfifo(node.real("/srv/tool.zip"))
    answer = packages.read(node)
    assert ("ok", {}) == (answer.status, answer.facts["distributions"])


@pytest.mark.parametrize(
    "entry", ["~orch-2.1.0.dist-info/METADATA", "killed.dist-info/REQUESTED", "x.dist/METADATA"]
)
def test_remains_of_an_install_are_no_distribution(make_node: MakeNode, entry: str) -> None:
    """What pip could not remove or never finished is not installed."""
    assert {} == read(make_node, {entry: "Name: torch\nVersion: 2.1.0\n"}).facts["distributions"]


def test_installer_and_record_digest_are_told(make_node: MakeNode) -> None:
    """The installer is a fact, the digest of RECORD a note."""
    answer = read(make_node, {"x-1.dist-info/INSTALLER": "uv\n", "x-1.dist-info/RECORD": "x,,\n"})
    assert {"version": "1", "installer": "uv"} == answer.facts["distributions"]["x"]
    assert {"x": hashlib.sha256(b"x,,\n").hexdigest()} == answer.notes["record_sha256"]


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (
            {"url": "https://u:hunter2@host/x.whl?sig=1", "archive_info": {"hashes": {"sha256": "ab"}}},
            {"url": "https://host/x.whl", "hash": "sha256=ab"},
        ),
        (
            {"url": "https://host/x.whl", "archive_info": {"hash": "sha256=ab"}},
            {"url": "https://host/x.whl", "hash": "sha256=ab"},
        ),
        (
            {
                "url": "https://host/r.git",
                "vcs_info": {"vcs": "git", "commit_id": "c0ffee", "requested_revision": "v1"},
            },
            {"url": "https://host/r.git", "commit": "c0ffee", "revision": "v1"},
        ),
        ({"url": "file:///tmp/build-x7f3/x", "dir_info": {}}, {"url": "local"}),
    ],
    ids=["credentials", "old-hash", "git", "local"],
)
def test_url_install_tells_its_origin(
    make_node: MakeNode, origin: Dict[str, Any], expected: Dict[str, str]
) -> None:
    """What was installed from a URL is compared by commit or hash, without credentials and build paths."""
    answer = read(make_node, {"x-1.dist-info/direct_url.json": json.dumps(origin)})
    assert expected == answer.facts["distributions"]["x"]["direct_url"]


def test_build_path_of_a_conda_package_is_no_fact(make_node: MakeNode) -> None:
    """Conda packages carry the direct_url.json of the machine that built them."""
    files = {
        "x-1.dist-info/INSTALLER": "conda\n",
        "x-1.dist-info/direct_url.json": direct_url(
            url="file:///home/conda/feedstock_root/work", dir_info={}
        ),
    }
    assert {"version": "1", "installer": "conda"} == read(make_node, files).facts["distributions"]["x"]


def test_editable_install_has_the_commit_of_its_checkout(make_node: MakeNode) -> None:
    """An editable install is what its checkout is; its path is a note."""
    files = {
        "x-1.dist-info/direct_url.json": direct_url(url="file:///src/my%20x", dir_info={"editable": True}),
        "/src/my x/.git/HEAD": "a" * 40,
    }
    answer = read(make_node, files)
    expected = {"version": "1", "installer": None, "editable": True, "commit": "a" * 40}
    assert expected == answer.facts["distributions"]["x"]
    assert {"x": "/src/my x"} == answer.notes["projects"]


def test_development_install_by_egg_link_is_editable(make_node: MakeNode) -> None:
    """`setup.py develop` leaves a link; its project also stands on sys.path, and is counted once."""
    files = {
        "my-tool.egg-link": "/src/tool\n../\n",
        "/src/tool/my_tool.egg-info/PKG-INFO": "Name: my-tool\nVersion: 0.3\n",
    }
    answer = read(make_node, files, path=[SITE, "/src/tool"])
    assert {"my-tool": {"version": "0.3", "installer": None, "editable": True}} == answer.facts[
        "distributions"
    ]
    assert {} == answer.facts["duplicates"]


def test_egg_info_of_an_editable_project_is_no_duplicate(make_node: MakeNode) -> None:
    """Setuptools leaves a .egg-info in the project that a .pth file puts on sys.path."""
    files = {
        "x-1.dist-info/direct_url.json": direct_url(url="file:///src/x", dir_info={"editable": True}),
        "/src/x/src/x.egg-info/PKG-INFO": "Name: x\nVersion: 1\n",
    }
    assert {} == read(make_node, files, path=[SITE, "/src/x/src"]).facts["duplicates"]


def test_first_of_two_distributions_wins_and_both_are_told(make_node: MakeNode) -> None:
    """sys.path decides which is imported; the other is drift that waits."""
    files = {"x-2.dist-info/METADATA": "", "x-1.dist-info/METADATA": "", "/first/x-3.dist-info/METADATA": ""}
    answer = read(make_node, files, path=["/first", SITE])
    assert "3" == answer.facts["distributions"]["x"]["version"]
    assert {"x": ["3", "1", "2"]} == answer.facts["duplicates"]
    assert {"x": ["1", "2"]} == answer.notes["twice_in_folder"]


def test_distribution_in_two_folders_is_in_none_twice(make_node: MakeNode) -> None:
    """A copy of pip's before the system's: each folder has one record."""
    files = {"x-2.dist-info/METADATA": "", "/first/x-3.dist-info/METADATA": ""}
    assert "twice_in_folder" not in read(make_node, files, path=["/first", SITE]).notes


def test_distribution_says_where_it_is_when_outside_the_prefix(make_node: MakeNode) -> None:
    """PYTHONPATH and the user's site hide behind the same import."""
    files = {
        "/opt/shared/a-1.dist-info/METADATA": "",
        "/home/u/.local/site/b-1.dist-info/METADATA": "",
        "c-1.dist-info/METADATA": "",
    }
    user_site = "/home/u/.local/site"
    answer = read(make_node, files, path=["/opt/shared", user_site, SITE], user_site=user_site)
    expected = {
        "a": {"version": "1", "installer": None, "folder": "/opt/shared"},
        "b": {"version": "1", "installer": None, "user_site": True},
        "c": {"version": "1", "installer": None},
    }
    assert expected == answer.facts["distributions"]


def test_distributions_agree_with_importlib_metadata(tmp_path: Path) -> None:
    """In the environment of these tests the names and versions are those that Python itself finds."""
    from importlib.metadata import distributions

    node = Context(
        environ={},
        workdir=str(tmp_path),
        launch="local",
        interpreter={"prefix": sys.prefix, "base_prefix": sys.base_prefix, "path": sys.path[1:]},
    )
    answer = packages.read(node)
    expected = {normalise(one.metadata["Name"]): one.version for one in distributions(path=sys.path[1:])}
    assert expected == {name: one["version"] for name, one in answer.facts["distributions"].items()}


# The smallest build backend (PEP 660), so that pip fetches none.
_BACKEND = """
import os, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    info = "demo-0.1.dist-info"
    with zipfile.ZipFile(os.path.join(folder, "demo-0.1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("demo.pth", os.getcwd())
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: demo\\nVersion: 0.1\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return "demo-0.1-py3-none-any.whl"
"""


@pytest.mark.skipif(find_spec("pip") is None, reason="pip is not installed beside the tests")
def test_real_editable_install_is_seen(tmp_path: Path) -> None:
    """What pip leaves for `pip install -e` of a minimal project, with no build tool fetched."""
    project = tmp_path / "proj"
    project.mkdir()
    (project / "backend.py").write_text(_BACKEND)
    (project / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    target = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True, timeout=120)
    pip = [sys.executable, "-m", "pip", "--python", str(target / "bin/python")]
    subprocess.run([*pip, "install", "-q", "--no-index", "-e", str(project)], check=True, timeout=120)
    (site,) = target.glob("lib/python3*/site-packages")
    node = Context(
        environ={},
        workdir="/",
        launch="local",
        interpreter={
            "prefix": str(target),
            "base_prefix": sys.base_prefix,
            "path": [str(site), str(project)],
        },
    )
    answer = packages.read(node)
    expected = {"version": "0.1", "installer": "pip", "editable": True}
    assert expected == answer.facts["distributions"]["demo"]


@pytest.mark.parametrize(
    ("name", "status", "errors"),
    [
        ("healthy-h100", "ok", 0),
        ("cpu-only", "ok", 0),
        ("garbled", "partial", 3),
        ("denied-and-hanging", "partial", 4),
    ],
)
def test_fake_node_has_its_status(
    fake_node: Callable[[str], Context], name: str, status: str, errors: int
) -> None:
    """Healthy, garbled and denied site folders are told apart."""
    answer = packages.read(fake_node(name))
    assert (status, errors) == (answer.status, len(answer.errors))


def test_user_site_of_a_fake_node_is_a_duplicate_after_the_environments_own(
    fake_node: Callable[[str], Context],
) -> None:
    """A venv comes before the user's site, and Debian's folder last."""
    facts = packages.read(fake_node("cpu-only")).facts
    assert {"requests": ["2.31.0", "2.28.0"]} == facts["duplicates"]
    assert {"version": "13.7.0", "installer": "uv", "user_site": True} == facts["distributions"]["rich"]
    assert "pyyaml" in facts["distributions"]


def read_pth(make_node: MakeNode, files: Dict[str, str], **interpreter: Any) -> Dict[str, str]:
    """The .pth files with code, where the site folder is one."""
    told = {"site_packages": [SITE], **interpreter}
    found: Dict[str, str] = read(make_node, files, **told).facts.get("pth", {})
    return found


def test_pth_file_is_a_fact_where_it_runs_code(make_node: MakeNode) -> None:
    """As site.py takes it: a line that begins with import, in a site folder; not one that names a folder."""
    files = {
        "a_profiler.pth": "# of ours\nimport profiler; profiler.start()\n",
        "a_tab.pth": "import\tos\n",
        "folders.pth": "/opt/code\nimportant/folder\n import os\n",
        "no_pth.txt": "import os\n",
        "/opt/on_pythonpath/other.pth": "import os\n",
        "/home/al/site/users.pth": "import os\n",
    }
    path = [SITE, "/opt/on_pythonpath", "/home/al/site"]
    user = {"path": path, "user_site": "/home/al/site"}
    assert {"a_profiler.pth", "a_tab.pth"} == set(read_pth(make_node, files, **user))
    told = read_pth(make_node, files, **user, user_site_enabled=True)
    assert {"a_profiler.pth", "a_tab.pth", "users.pth"} == set(told)


def test_pth_file_of_a_package_is_compared_with_it_unless_edited(make_node: MakeNode) -> None:
    """That of setuptools comes and goes with setuptools; a line that somebody added does not."""
    text = "import os; __import__('_distutils_hack')\n"
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    files = {
        "setuptools-80.9.0.dist-info/RECORD": f"distutils-precedence.pth,sha256={digest},41\r\nx.py,,\r\n",
        "distutils-precedence.pth": text,
    }
    assert {} == read_pth(make_node, files)
    files["distutils-precedence.pth"] += "import sys; sys.dont_write_bytecode = True\n"
    assert {"distutils-precedence.pth"} == set(read_pth(make_node, files))


def test_pth_file_is_the_same_under_another_prefix(make_node: MakeNode, tmp_path: Path) -> None:
    """Where the environment lies is no difference of what runs; another folder in it is."""

    def told(prefix: str, line: str) -> Dict[str, str]:
        site = f"{prefix}/lib/python3.11/site-packages"
        places = {"prefix": prefix, "path": [site], "site_packages": [site]}
        return read_pth(make_node, {f"{site}/x.pth": f"# {prefix}\n{line}\n"}, **places)

    line = "import sys; sys.path.insert(0, '{}/share')"
    one, other = "/opt/env", "/home/al/.conda/envs/train"
    assert told(one, line.format(one)) == told(other, line.format(other))
    assert told(one, line.format("/opt/env-2")) != told(other, line.format("/opt/env-2").replace("2", "3"))
