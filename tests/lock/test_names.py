"""The name table that ships: conda packages and the distributions that they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.errors import InputError
from envaudit.lock.names import TABLE, conda_names_of, distributions_of, normalised, provided, table_path


def test_name_is_compared_as_the_index_does() -> None:
    """PEP 503: case and separators do not count."""
    assert "ruamel-yaml" == normalised("Ruamel.YAML") == normalised("ruamel_yaml")


@pytest.mark.parametrize(
    ("conda", "expected"),
    [
        ("pytorch", ("torch",)),
        ("msgpack-python", ("msgpack",)),
        ("Django", ("django",)),
        ("numpy", ("numpy",)),
    ],
)
def test_conda_package_has_its_distribution(conda: str, expected: tuple[str, ...]) -> None:
    """Those that are called otherwise on the index, and the rest by their own name."""
    assert expected == distributions_of(conda)


def test_two_conda_packages_may_hold_one_distribution() -> None:
    """`dask` and `dask-core` both bring dask, and neither is a duplicate of the other."""
    assert ("dask", "dask-core") == conda_names_of("Dask")
    assert ("dask",) == distributions_of("dask-core")


def test_only_what_depends_on_python_provides_a_distribution() -> None:
    """`xxhash` of conda is the C library; `python-xxhash` is what pip calls xxhash."""
    conda = [
        ("xxhash", "0.8.2", ["libgcc-ng"]),
        ("python-xxhash", "3.4.1", ["python", "xxhash"]),
        ("numpy", "1.26.4", ["python_abi"]),
    ]
    assert {"xxhash": "3.4.1", "numpy": "1.26.4"} == provided(conda)


def test_conda_lock_reads_the_same_table() -> None:
    """The file has the form of conda-lock's mapping, so that nothing is fetched."""
    from conda_lock.lookup import conda_name_to_pypi_name, pypi_name_to_conda_name

    url = f"file://{TABLE}"
    assert ("torch", "opencv") == (
        conda_name_to_pypi_name("pytorch", mapping_url=url),
        pypi_name_to_conda_name("opencv-python", mapping_url=url),
    )


def test_table_of_the_user_is_used(tmp_path: Path) -> None:
    """Names of a company's own packages are not in a table that ships."""
    table = tmp_path / "names.json"
    table.write_text('{"acme": {"conda_name": "acme-py", "pypi_name": "acme"}}')
    assert ("acme",) == distributions_of("acme-py", table_path(str(table)))


@pytest.mark.parametrize("text", ["[]", "{", '{"a": {"conda_name": 1, "pypi_name": "a"}}', '{"a": "b"}'])
def test_table_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    """With what an entry looks like."""
    table = tmp_path / "names.json"
    table.write_text(text)
    with pytest.raises(InputError) as raised:
        table_path(str(table))
    assert ("not a name table", str(table)) == (raised.value.what, raised.value.where)
