"""Section `integrity`: what lies in an environment other than it was installed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest

from envaudit.probe import integrity, registry
from envaudit.probe.context import Answer, Context

SITE = "lib/python3.11/site-packages"


def sha256(text: str) -> str:
    """The digest of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def entry(path: str, text: str, **more: Any) -> Dict[str, Any]:
    """A file of a conda package."""
    about = {"path_type": "hardlink", "sha256": sha256(text), "size_in_bytes": len(text)}
    return {"_path": path, **about, **more}


def row(path: str, text: str, algorithm: str = "sha256") -> str:
    """A row of a RECORD."""
    digest = hashlib.new(algorithm, text.encode()).digest()
    return f"{path},{algorithm}={base64.urlsafe_b64encode(digest).decode().rstrip('=')},{len(text)}\n"


class Environment:
    """An environment of two conda packages and one of pip, healthy until a test changes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix = folder / "env"
        self.site = self.prefix / SITE
        self.conda(
            "a",
            [
                entry("lib/a.so", "library"),
                entry("etc/a.conf", "as built", sha256_in_prefix=sha256("as installed"), size_in_bytes=8),
                entry("lib/a.pyc", "gone"),
                {"_path": "lib/a.so.1", "path_type": "softlink", "sha256": sha256("library")},
            ],
        )
        self.conda("b", [entry("share/b", "data"), entry(f"{SITE}/pb/__init__.py", "import b")])
        self.write("lib/a.so", "library")
        self.write("etc/a.conf", "as installed")
        self.write("share/b", "data")
        self.write(f"{SITE}/pb/__init__.py", "import b")
        os.symlink("a.so", self.prefix / "lib/a.so.1")
        self.pip("tool", {"tool/__init__.py": "tool", "tool/data/one.txt": "one", "../../../bin/tool": "#!x"})

    def write(self, path: str, text: str) -> Path:
        """A file of the prefix."""
        place = self.prefix / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def conda(self, name: str, paths: List[Dict[str, Any]]) -> None:
        """Conda's record of a package."""
        record = {"name": name, "version": "1", "paths_data": {"paths": paths, "paths_version": 1}}
        self.write(f"conda-meta/{name}-1-0.json", json.dumps(record))

    def pip(self, name: str, files: Dict[str, str], record: Optional[str] = None) -> None:
        """A distribution as pip installs it; `record` in place of what would be right."""
        for path, text in files.items():
            self.write(os.path.normpath(f"{SITE}/{path}"), text)
        about = f"{SITE}/{name}-1.dist-info"
        self.write(f"{about}/INSTALLER", "pip\n")
        self.write(f"{about}/METADATA", f"Name: {name}\nVersion: 1\n")
        rows = "".join(row(path, text) for path, text in files.items())
        self.write(f"{about}/RECORD", rows + f"{name}-1.dist-info/RECORD,,\n" if record is None else record)

    def read(self, mode: str = "hash", **options: Any) -> Answer:
        """What the section says."""
        told = {"prefix": str(self.prefix), "base_prefix": str(self.prefix), "path": [str(self.site)]}
        context = Context(
            environ={},
            workdir="/",
            launch="local",
            interpreter=told,
            options={"integrity": mode, **options},
        )
        return integrity.read(context)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A healthy one."""
    return Environment(tmp_path)


def found(answer: Answer) -> Dict[str, Any]:
    """What is not as recorded."""
    return {state: answer.facts[state] for state in integrity.STATES if answer.facts[state]}


@pytest.mark.parametrize("mode", ["hash", "size"])
def test_integrity_of_a_healthy_environment_is_whole(environment: Environment, mode: str) -> None:
    """Also of the file that holds the prefix, whose size conda has from before; byte code is left out."""
    answer = environment.read(mode)
    assert ("ok", {}, mode, []) == (answer.status, found(answer), answer.facts["mode"], answer.errors)
    assert 8 == answer.notes["examined"]


def test_integrity_of_changed_files_names_them_by_package(environment: Environment) -> None:
    """Conda's and pip's, a script in bin too, each under its package and below the prefix."""
    environment.write("lib/a.so", "another one")
    environment.write(f"{SITE}/tool/__init__.py", "tool # edited")
    environment.write("bin/tool", "#!y")
    answer = environment.read()
    assert {"changed": {"a": ["lib/a.so"], "pip:tool": ["bin/tool", f"{SITE}/tool/__init__.py"]}} == found(
        answer
    )
    assert {"a": 1, "pip:tool": 2} == answer.facts["counts"]["changed"]


def test_flipped_byte_is_found_by_hash_and_not_by_size(environment: Environment) -> None:
    """The size is as recorded, so that only reading tells."""
    environment.write("lib/a.so", "librarx")
    assert {"changed": {"a": ["lib/a.so"]}} == found(environment.read("hash"))
    assert {} == found(environment.read("size"))


def test_other_size_is_found_in_both_modes(environment: Environment) -> None:
    """And costs no reading."""
    environment.write("share/b", "more data")
    assert {"changed": {"b": ["share/b"]}} == found(environment.read("size"))
    assert {"changed": {"b": ["share/b"]}} == found(environment.read("hash"))


@pytest.mark.parametrize("mode", ["hash", "size"])
def test_missing_files_and_links_are_told(environment: Environment, mode: str) -> None:
    """A file, a link, and a whole folder."""
    (environment.prefix / "share/b").unlink()
    (environment.prefix / "lib/a.so.1").unlink()
    (environment.site / "tool/data/one.txt").unlink()
    (environment.site / "tool/data").rmdir()
    expected = {"b": ["share/b"], "a": ["lib/a.so.1"], "pip:tool": [f"{SITE}/tool/data/one.txt"]}
    assert {"missing": expected} == found(environment.read(mode))


def test_extra_files_in_a_package_folder_are_told(environment: Environment) -> None:
    """A module, a whole folder and a link that nobody recorded, each under the folder's package."""
    environment.write(f"{SITE}/tool/patch.py", "evil")
    environment.write(f"{SITE}/tool/data/deep/er/two.txt", "two")
    os.symlink("/usr/lib", environment.site / "pb/more")
    expected = {
        "pip:tool": [f"{SITE}/tool/data/deep/er/two.txt", f"{SITE}/tool/patch.py"],
        "b": [f"{SITE}/pb/more"],
    }
    for mode in ("hash", "size"):
        assert {"extra": expected} == found(environment.read(mode))


@pytest.mark.parametrize(
    "path",
    [
        f"{SITE}/tool/__pycache__/tool.cpython-311.pyc",
        f"{SITE}/tool/__pycache__/kernel.py312.nbi",
        f"{SITE}/tool/old.pyc",
        f"{SITE}/tool/.nfs0000000000a1b2c300000001",
        f"{SITE}/tool-1.dist-info/direct_url.json",
        f"{SITE}/tool-1.dist-info/uv_cache.json",
        f"{SITE}/__editable__.mine-0.1.pth",
        f"{SITE}/mine.py",
        f"{SITE}/unknown/module.py",
        f"{SITE}/~ool/__init__.py",
        "lib/gdk-pixbuf-2.0/loaders.cache",
        "share/b.cache",
        "bin/mine",
        "conda-meta/history",
    ],
)
def test_extra_is_silent_about_what_tools_leave(environment: Environment, path: str) -> None:
    """Byte code, caches, metadata, generated files, and what no record is kept of."""
    environment.write(path, "x")
    answer = environment.read()
    assert ("ok", {}) == (answer.status, found(answer))


def test_extra_in_a_folder_that_conda_recorded_as_such_is_told(environment: Environment) -> None:
    """Conda names the folders that a package brings empty; that the folder is known hides nothing in it."""
    about = [entry(f"{SITE}/pd/__init__.py", "d"), {"_path": f"{SITE}/pd/plugins", "path_type": "directory"}]
    environment.conda("d", about)
    environment.write(f"{SITE}/pd/__init__.py", "d")
    (environment.site / "pd/plugins").mkdir()
    assert {} == found(environment.read())
    environment.write(f"{SITE}/pd/plugins/evil.py", "import os")
    assert {"extra": {"d": [f"{SITE}/pd/plugins/evil.py"]}} == found(environment.read())


def test_extra_in_a_shared_namespace_is_silent(environment: Environment) -> None:
    """`nvidia` belongs to nobody: another tool may have put a folder there; `nvidia/cublas` is owned."""
    environment.pip("nvidia-cublas", {"nvidia/cublas/lib/libcublas.so.12": "blas"})
    environment.write(f"{SITE}/nvidia/elsewhere/libx.so", "x")
    assert {} == found(environment.read())
    environment.write(f"{SITE}/nvidia/cublas/lib/libcublas.so", "x")
    expected = {"pip:nvidia-cublas": [f"{SITE}/nvidia/cublas/lib/libcublas.so"]}
    assert {"extra": expected} == found(environment.read())


def test_extra_in_a_folder_of_a_distribution_without_record_is_silent(environment: Environment) -> None:
    """An egg that shares a package's folder: whose the files are, nobody can say."""
    about = environment.write(f"{SITE}/plugin-1.egg-info/PKG-INFO", "Name: plugin\nVersion: 1\n")
    about.with_name("top_level.txt").write_text("tool\n")
    environment.write(f"{SITE}/tool/plugin.py", "x")
    assert {} == found(environment.read())


def test_file_of_two_packages_is_as_one_of_them_says(environment: Environment) -> None:
    """Whichever was linked last has won; a third content is a change of both."""
    environment.conda("c", [entry("share/x", "of c")])
    environment.conda("d", [entry("share/x", "of package d")])
    for text in ("of c", "of package d"):
        environment.write("share/x", text)
        for mode in ("hash", "size"):
            assert {} == found(environment.read(mode))
    environment.write("share/x", "of nobody")
    assert {"changed": {"c": ["share/x"], "d": ["share/x"]}} == found(environment.read())


def test_pip_over_conda_is_as_pip_says(environment: Environment) -> None:
    """The same folder of metadata and the same files, now pip's: conda's digests are history."""
    environment.conda(
        "tool", [entry(f"{SITE}/tool/__init__.py", "older"), entry(f"{SITE}/tool-1.dist-info/METADATA", "x")]
    )
    assert {"changed": {"tool": [f"{SITE}/tool-1.dist-info/METADATA"]}} == found(environment.read())


@pytest.mark.parametrize("mode", ["hash", "size"])
def test_other_kind_in_a_file_s_place_is_a_change(
    environment: Environment, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO, a socket and a folder are neither read nor waited for."""
    places = [
        environment.prefix / "share/b",
        environment.prefix / "lib/a.so",
        environment.site / "tool/__init__.py",
    ]
    for place in places:
        place.unlink()
    os.mkfifo(places[0])
    places[1].mkdir()
    monkeypatch.chdir(places[2].parent)  # the name of a socket has 107 bytes at most
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(places[2].name)
        assert {
            "changed": {"b": ["share/b"], "a": ["lib/a.so"], "pip:tool": [f"{SITE}/tool/__init__.py"]}
        } == found(environment.read(mode))


def test_file_behind_a_link_is_what_counts(environment: Environment) -> None:
    """Conda itself links where a cache lies on another disk; a link to something else is a change."""
    cached = environment.folder / "cached"
    cached.write_text("library")
    place = environment.prefix / "lib/a.so"
    place.unlink()
    place.symlink_to(cached)
    assert {} == found(environment.read())
    place.unlink()
    place.symlink_to("/dev/zero")
    assert {"changed": {"a": ["lib/a.so"]}} == found(environment.read())


def test_link_that_became_a_file_is_as_its_target_was(environment: Environment) -> None:
    """A copy that follows links changes nothing; another library under that name does."""
    link = environment.prefix / "lib/a.so.1"
    link.unlink()
    link.write_text("library")
    assert {} == found(environment.read())
    link.write_text("librarx")
    assert {"changed": {"a": ["lib/a.so.1"]}} == found(environment.read())


def test_file_that_cannot_be_looked_at_is_an_error(environment: Environment) -> None:
    """Not known is not changed, and the others are told; a name that no file can have stands for it."""
    environment.conda("long", [entry("x" * 300, "x")])
    environment.write("lib/a.so", "librarx")
    answer = environment.read()
    assert ("partial", {"changed": {"a": ["lib/a.so"]}}) == (answer.status, found(answer))
    assert [f"{environment.prefix}/{'x' * 300}: File name too long"] == answer.errors


def test_pip_package_without_a_record_is_missing_evidence(environment: Environment) -> None:
    """Gone or emptied, by a killed install or somebody's hand; a distribution's own package never had one."""
    record = environment.site / "tool-1.dist-info/RECORD"
    for spoil in (lambda: record.write_text(""), record.unlink):
        spoil()
        answer = environment.read()
        assert ("partial", {}) == (answer.status, found(answer))
        assert [f"{record}: nothing is recorded, although pip does so"] == answer.errors
    environment.write(f"{SITE}/tool-1.dist-info/INSTALLER", "rpm\n")
    assert "ok" == environment.read().status


@pytest.mark.parametrize("path", ["", "/tool-1.dist-info/INSTALLER"])
def test_site_folder_that_may_not_be_read_is_missing_evidence(
    make_node: Callable[..., Context], path: str
) -> None:
    """Whose files are whole, nobody has seen."""
    site = f"/env/{SITE}"
    files = {f"{site}/tool-1.dist-info/INSTALLER": "pip\n", f"{site}/tool-1.dist-info/RECORD": "tool.py,,\n"}
    told = {"prefix": "/env", "base_prefix": "/env", "path": [site]}
    answer = integrity.read(make_node(files, interpreter=told, denied=[site + path]))
    assert ("partial", [f"{site}{path}: Permission denied"]) == (answer.status, answer.errors)


def test_conda_record_of_names_alone_tells_what_is_missing(environment: Environment) -> None:
    """As conda wrote them before paths_data; that no digest was compared is said."""
    environment.write("lib/old.so", "old")
    environment.write(
        "conda-meta/old-1-0.json", json.dumps({"name": "old", "files": ["lib/old.so", "lib/z"]})
    )
    answer = environment.read()
    assert ("ok", {"missing": {"old": ["lib/z"]}}) == (answer.status, found(answer))
    assert ["contents of 1 conda packages"] == list(answer.notes["not_examined"])


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512", "md5", "blake2b", "sha3_256"])
def test_record_of_every_usual_algorithm_is_checked(environment: Environment, algorithm: str) -> None:
    """Wheels may take any from sha256 on; the oldest records have md5."""
    environment.pip(
        "other", {"other/__init__.py": "text"}, record=row("other/__init__.py", "text", algorithm)
    )
    assert {} == found(environment.read())
    environment.write(f"{SITE}/other/__init__.py", "texx")
    assert {"changed": {"pip:other": [f"{SITE}/other/__init__.py"]}} == found(environment.read())


def test_record_of_an_unknown_algorithm_is_said_to_be_unexamined(environment: Environment) -> None:
    """Its sizes are compared, and a healthy node is not partial."""
    environment.pip("other", {"other.py": "text"}, record="other.py,blake9=AAAA,4\n")
    answer = environment.read()
    assert ("ok", {}) == (answer.status, found(answer))
    assert ["1 files hashed by blake9"] == list(answer.notes["not_examined"])
    environment.write(f"{SITE}/other.py", "longer text")
    assert {"changed": {"pip:other": [f"{SITE}/other.py"]}} == found(environment.read())


@pytest.mark.parametrize(
    "record", ["a,b\n\n,,\nx", '"a\n', "\0,sha256=x,1\n", "x,sha256=!,1\n" * 3, "\udcff,,\n"]
)
def test_garbled_record_does_no_harm(environment: Environment, record: str) -> None:
    """Whatever stands in it, the other packages are examined."""
    (environment.site / "tool-1.dist-info/RECORD").write_bytes(os.fsencode(record))
    environment.write("lib/a.so", "librarx")
    assert {"a": ["lib/a.so"]} == environment.read().facts["changed"]


def test_record_that_leads_out_of_the_prefix_is_not_followed(environment: Environment) -> None:
    """`../../../../../etc/passwd` and absolute paths, of pip and of conda; scripts in bin are fine."""
    out = ["../../../../../../etc/passwd", "/etc/passwd", "a/../../../../../../etc/passwd", ".."]
    environment.pip("evil", {}, record="".join(row(path, "x") for path in out[:3]))
    environment.conda("evil", [entry(path, "x") for path in ("../../etc/passwd", "/etc/passwd", "", "..")])
    answer = environment.read()
    assert ("ok", {}, 8) == (answer.status, found(answer), answer.notes["examined"])
    assert 7 == answer.notes["outside_prefix"]


def test_sparse_file_without_a_recorded_size_is_not_read(environment: Environment) -> None:
    """A terabyte of zeros costs no time, and is an error that names the file."""
    environment.pip(
        "other", {"other.bin": "text"}, record=row("other.bin", "text").rpartition(",")[0] + ",\n"
    )
    os.truncate(environment.site / "other.bin", 1 << 40)
    answer = environment.read()
    assert "partial" == answer.status
    assert answer.errors[0].startswith(f"{environment.site}/other.bin: {1 << 40} bytes")


def test_names_that_are_no_text_are_printable(environment: Environment) -> None:
    """A file name that is not UTF-8 leaves the node as words."""
    with open(os.fsencode(f"{environment.site}/tool/") + b"\xff.py", "w") as file:
        file.write("x")
    assert {"extra": {"pip:tool": [f"{SITE}/tool/\\xff.py"]}} == found(environment.read())


def test_paths_beyond_the_first_twenty_of_a_package_are_counted(environment: Environment) -> None:
    """A wholly replaced package does not fill the report."""
    environment.conda("many", [entry(f"lib/{number:02d}", "x") for number in range(30)])
    facts = environment.read().facts
    assert (20, 30) == (len(facts["missing"]["many"]), facts["counts"]["missing"]["many"])


def test_integrity_without_an_environment_is_absent(tmp_path: Path) -> None:
    """A plain interpreter that nothing was installed for."""
    told = {"prefix": str(tmp_path), "base_prefix": str(tmp_path), "path": []}
    answer = integrity.read(Context(environ={}, workdir="/", launch="local", interpreter=told))
    assert ("absent", {}, {"examined": 0}) == (answer.status, answer.facts, answer.notes)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"name": "a", "paths_data": 7}', '{"name": "a", "paths_data": {"paths": [{}]}}']
)
def test_integrity_with_a_garbled_conda_record_is_partial(environment: Environment, text: str) -> None:
    """The record is named, and the rest is read."""
    environment.write("conda-meta/z.json", text)
    answer = environment.read()
    assert ("partial", 8) == (answer.status, answer.notes["examined"])
    assert answer.errors[0].startswith(f"{environment.prefix}/conda-meta/z.json: ")


def test_integrity_with_records_that_may_not_be_read_is_partial(make_node: Callable[..., Context]) -> None:
    """A folder that is denied is evidence that is missing."""
    told = {"prefix": "/env", "base_prefix": "/env", "path": ["/env/lib/python3.11/site-packages"]}
    node = make_node({"/env/conda-meta/a.json": "{}"}, interpreter=told, denied=["/env/conda-meta"])
    answer = integrity.read(node)
    assert ("partial", True) == (answer.status, "Permission denied" in answer.errors[0])


def test_lib64_that_is_a_link_to_lib_is_looked_at_once(environment: Environment) -> None:
    """Both stand on sys.path of some distributions."""
    os.symlink("lib", environment.prefix / "lib64")
    environment.write(f"{SITE}/tool/__init__.py", "edited")
    told = {
        "prefix": str(environment.prefix),
        "base_prefix": str(environment.prefix),
        "path": [str(environment.site), str(environment.site).replace("/lib/", "/lib64/")],
    }
    answer = integrity.read(Context(environ={}, workdir="/", launch="local", interpreter=told))
    assert {"pip:tool": 1} == answer.facts["counts"]["changed"]


def test_file_that_is_recorded_over_and_over_is_read_once(environment: Environment) -> None:
    """Packages share files, and a hostile record names a large one a million times."""
    environment.pip("same", {"same.py": "same"}, row("same.py", "same") * 50)
    environment.pip("other", {"same.py": "same"}, row("same.py", "same"))
    before = environment.read().notes["read_bytes"]
    environment.pip("same", {"same.py": "same"}, row("same.py", "same"))
    assert before == environment.read().notes["read_bytes"]
    environment.write(f"{SITE}/same.py", "SAME")
    path = f"{SITE}/same.py"
    assert {"changed": {"pip:other": [path], "pip:same": [path]}} == found(environment.read())


def test_integrity_is_read_only_where_it_is_asked_for() -> None:
    """An ordinary snapshot does not hash gigabytes."""
    assert "integrity" not in registry.section_names()
    assert integrity is registry.load_section("integrity")


def test_progress_is_written_to_the_file_that_was_made_for_it(environment: Environment) -> None:
    """All files and bytes at the end; whoever started the probe reads it meanwhile."""
    progress = environment.folder / "progress"
    progress.touch()
    environment.read(integrity_progress=str(progress))
    files, size_bytes, all_files, all_bytes = map(int, progress.read_text().split())
    assert (8, 8) == (files, all_files)
    assert size_bytes == all_bytes > 0


def test_progress_into_what_is_no_such_file_is_left_out(environment: Environment) -> None:
    """A link is not followed, a FIFO not waited for, and nothing is created."""
    other, fifo = environment.folder / "other", environment.folder / "fifo"
    other.write_text("kept")
    (environment.folder / "link").symlink_to(other)
    os.mkfifo(fifo)
    for name in ("link", "fifo", "none"):
        assert "ok" == environment.read(integrity_progress=str(environment.folder / name)).status
    assert ("kept", False) == (other.read_text(), (environment.folder / "none").exists())
