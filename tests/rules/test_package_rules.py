"""EA211 to EA221: Python, torch, NCCL and packages that are not the same on all nodes."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest

from envaudit.diff import compare, compare_to_reference
from envaudit.model import Finding, Fingerprint, Section
from envaudit.rules import Evidence, Policy, judge
from envaudit.rules.policy import Waiver
from tests.diff.nodes import package, training_node

DEFAULT = Policy()
HEALTHY = [training_node(f"node{number:02d}") for number in range(1, 5)]


def findings(nodes: List[Fingerprint], policy: Policy = DEFAULT) -> List[Finding]:
    """What all rules say of these nodes, compared with each other."""
    return list(judge(Evidence(tuple(nodes), drifts=compare(nodes)), policy))


def brief(found: List[Finding]) -> List[Tuple[str, str, Tuple[str, ...]]]:
    """Rule, severity and nodes of each."""
    return [(each.rule, each.severity, each.nodes) for each in found]


def with_python(node: str, version: str) -> Fingerprint:
    """A node with an interpreter; another minor version brings other builds of its packages along."""
    tag = "py" + "".join(version.split(".")[:2])
    conda = {"packages": {"numpy": package("1.26.4", f"{tag}_0"), "python": package(version, "h_0")}}
    return training_node(
        node, conda=conda, python={"version": version, "soabi": f"cpython-{tag}", "asked": "python3"}
    )


@pytest.mark.parametrize(
    ("version", "expected"), [("3.11.8", []), ("3.11.9", ["EA212"]), ("3.12.8", ["EA211"])]
)
def test_python_version_is_judged_by_the_part_that_differs(version: str, expected: List[str]) -> None:
    """Another minor version is an error, another patch a warning, and neither tells each package."""
    nodes = [*(with_python(node, "3.11.8") for node in ("a", "b")), with_python("c", version)]
    assert expected == [each.rule for each in findings(nodes)]


def test_python_patch_is_an_error_under_a_strict_profile() -> None:
    """Who wants bit for bit says so."""
    nodes = [*(with_python(node, "3.11.8") for node in ("a", "b")), with_python("c", "3.11.9")]
    assert [("EA212", "error", ("c",))] == brief(findings(nodes, Policy(profile="strict")))


def test_nccl_that_differs_is_one_finding_with_all_that_follows() -> None:
    """Another NCCL is also another package, another file and another way to it."""
    conda = {"numpy": package("1.26.4"), "pytorch": package("2.4.1"), "nccl": package("2.20.5.1")}
    odd = training_node(
        "node05",
        conda={"packages": conda},
        libraries={"nccl": {"version": "2.20.5", "origin": "system", "path": "/usr/lib/libnccl.so.2"}},
    )
    healthy = [
        training_node(f"n{n}", conda={"packages": {**conda, "nccl": package("2.21.5.1")}}) for n in range(3)
    ]
    (finding,) = findings([*healthy, odd])
    assert ("EA214", "error", ("node05",), "NCCL differs") == (*brief([finding])[0], finding.message)
    assert ["libraries/nccl/version"] == [drift.path for drift in finding.drifts]
    assert ["conda/packages/nccl/version", "libraries/nccl/origin", "libraries/nccl/path"] == [
        drift.path for drift in finding.following
    ]
    assert ("nccl on node05: /usr/lib/libnccl.so.2",) == finding.evidence


def test_nccl_package_that_differs_on_another_node_is_no_symptom() -> None:
    """What differs on a node whose NCCL is right has another cause."""
    conda = {"numpy": package("1.26.4"), "pytorch": package("2.4.1"), "nccl": package("2.20.5.1")}
    odd = [
        training_node("node05", nccl="2.20.5"),
        training_node("node06", conda={"packages": conda}),
    ]
    assert [("EA214", ("node05",)), ("EA216", ("node06",))] == [
        (each.rule, each.nodes) for each in findings([*HEALTHY, *odd])
    ]


def test_torch_that_differs_takes_its_libraries_along() -> None:
    """A CPU build on one node: one finding, not forty about CUDA libraries."""
    odd = training_node(
        "node05",
        torch={"version": "2.4.1+cpu", "cuda": None, "architectures": []},
        libraries={},
        conda={"packages": {"numpy": package("1.26.4"), "pytorch": package("2.4.1", "cpu_0")}},
    )
    (finding,) = findings([*HEALTHY, odd])
    assert ("EA213", "error", ("node05",)) == brief([finding])[0]
    assert "torch is a CPU build, and the nodes have GPUs" == finding.message
    assert {"torch/cuda", "torch/version"} == {drift.path for drift in finding.drifts}
    assert "libraries/nccl" in {drift.path for drift in finding.following}


@pytest.mark.parametrize(("name", "rule"), [("ray", "EA215"), ("cloudpickle", "EA215"), ("zlib", "EA216")])
def test_package_that_must_match_is_an_error_and_any_other_a_warning(name: str, rule: str) -> None:
    """What ranks exchange or compute with weighs more than the rest."""
    nodes = [training_node(node, conda_packages={name: package("1.0")}) for node in ("a", "b")]
    (finding,) = findings([*nodes, training_node("c", conda_packages={name: package("2.0")})])
    severity = {"EA215": "error", "EA216": "warning"}[rule]
    assert [(rule, severity, ("c",))] == brief([finding])
    assert f"{name} differs" == finding.message


def test_packages_that_must_match_are_the_policy_s() -> None:
    """A team that exchanges its own format names its package."""
    nodes = [training_node(node, conda_packages={"zlib": package("1.0")}) for node in ("a", "b")]
    odd = training_node("c", conda_packages={"zlib": package("2.0")})
    assert ["EA215"] == [each.rule for each in findings([*nodes, odd], Policy(must_match=("zlib",)))]


def test_advice_follows_the_reference() -> None:
    """The others' lock helps where there are others who have it right."""
    odd, more = training_node("b", nccl="2.20.5"), training_node("c", conda_packages={"ray": package("1")})
    drifts = compare_to_reference({"b": training_node("b")}, {"b": odd}, basis="baseline", suffix="@good")
    (now,) = judge(Evidence((odd,), drifts=drifts, references=(training_node("b@good"),)))
    (tie,) = findings([training_node("a"), odd])
    (majority,) = findings([*HEALTHY, odd])
    (extra,) = findings([*HEALTHY, more])
    assert now.hint.endswith("or accept what it is: envaudit baseline accept --from NODE@latest.")
    assert "Find out which of the values is right, and bring the other nodes to it." == tie.hint
    assert majority.hint.startswith("Install it from the others' lock")
    assert "Remove what is extra, or lock it and install the lock on all nodes." == extra.hint


def test_many_packages_of_one_node_are_one_finding() -> None:
    """Forty packages of one node have one cause."""
    more = {f"p{number}": package("1") for number in range(40)}
    (finding,) = findings([*HEALTHY, training_node("node05", conda_packages=more)])
    assert ("EA216", "40 packages are extra", "conda/packages") == (
        finding.rule,
        finding.message,
        finding.path,
    )
    assert 40 == len(finding.drifts)


def test_packages_that_differ_in_several_ways_differ() -> None:
    """Where some are extra and some are changed, no single word holds."""
    more: Dict[str, Any] = {f"p{number}": package("1") for number in range(4)}
    healthy = [training_node(node, conda_packages={"zlib": package("1")}) for node in ("a", "b")]
    odd = training_node("c", conda_packages={**more, "zlib": package("2")})
    assert ["5 packages differ"] == [each.message for each in findings([*healthy, odd])]


def test_conda_package_under_another_name_is_its_distribution() -> None:
    """The ray of conda is `ray-core`: one difference, and one of a package that must match."""

    def node(name: str, version: str) -> Fingerprint:
        inside = {"packages": {"distributions": {"ray": {"version": version, "installer": "conda"}}}}
        return training_node(name, conda_packages={"ray-core": package(version)}, **inside)

    (finding,) = findings([node("a", "2.9.0"), node("b", "2.9.0"), node("c", "2.10.0")])
    assert ("EA215", ("c",)) == (finding.rule, finding.nodes)
    assert ["conda/packages/ray-core/version"] == [drift.path for drift in finding.drifts]
    assert ["packages/distributions/ray/version"] == [drift.path for drift in finding.following]


@pytest.mark.parametrize("name", ["cuda-toolkit", "cuda-bindings", "nvidia-nccl-cu13"])
def test_wheels_that_torch_asks_for_follow_from_it(name: str) -> None:
    """Another torch brings another of each."""

    def node(node: str, torch: str, version: str) -> Fingerprint:
        inside: Dict[str, Any] = {"packages": {"distributions": {name: {"version": version}}}}
        inside["torch"] = {"version": torch, "cuda": "12.4", "architectures": ["sm_90"]}
        return training_node(node, **inside)

    nodes = [node("a", "2.9.0", "12.8"), node("b", "2.9.0", "12.8"), node("c", "2.10.0", "12.9")]
    assert ["EA213"] == [each.rule for each in findings(nodes)]


@pytest.mark.parametrize(
    "policy",
    [
        Policy(levels={"EA213": "off"}),
        Policy(levels={"EA213": "info"}),
        Policy(waivers=(Waiver("EA213", "2027-01-31", "two releases on purpose", "ops"),)),
    ],
)
def test_nccl_that_differs_is_an_error_where_another_torch_is_accepted(policy: Policy) -> None:
    """Ranks hang for it, whatever somebody has said of torch."""
    odd = training_node("node05", torch={"version": "2.4.0", "cuda": "12.4"}, nccl="2.20.5")
    assert ("EA214", "error", ("node05",)) == brief(findings([*HEALTHY, odd], policy))[0]


def test_nccl_of_one_node_does_not_follow_from_a_torch_that_two_have() -> None:
    """The other one has the same torch, and the NCCL of all."""
    older = {"version": "2.4.0", "cuda": "12.4"}
    odd = [training_node("node05", torch=older, nccl="2.20.5"), training_node("node06", torch=older)]
    expected = [("EA213", "error", ("node05", "node06")), ("EA214", "error", ("node05",))]
    assert expected == brief(findings([*HEALTHY, *odd]))


def test_nccl_follows_from_a_torch_that_only_one_node_has() -> None:
    """Two nodes have another CUDA, and one of them another release with another NCCL."""
    odd = [
        training_node("node05", torch={"version": "2.4.0", "cuda": "12.1"}, nccl="2.20.5"),
        training_node("node06", torch={"version": "2.4.2", "cuda": "12.1"}),
    ]
    assert [("EA213", "error", ("node05", "node06"))] == brief(findings([*HEALTHY, *odd]))


def test_cpu_torch_is_an_error_where_another_torch_is_only_told() -> None:
    """An error of a node does not go with a remark about the nodes."""
    odd = training_node(
        "node05",
        torch={"version": "2.4.1+cpu", "cuda": None, "hip": None, "architectures": []},
    )
    found = brief(findings([*HEALTHY, odd], Policy(levels={"EA213": "info"})))
    assert [("EA240", "error", ("node05",)), ("EA213", "info", ("node05",))] == found


def test_conda_package_and_its_distribution_are_one_difference() -> None:
    """One version of numpy that differs is one cause, though two sections see it."""
    inside = {"packages": {"distributions": {"numpy": {"version": "1.26.4", "installer": "conda"}}}}
    other = {"packages": {"distributions": {"numpy": {"version": "2.0.1", "installer": "conda"}}}}
    nodes = [training_node(node, **inside) for node in ("a", "b")]
    conda = {"packages": {"numpy": package("2.0.1"), "pytorch": package("2.4.1")}}
    (finding,) = findings([*nodes, training_node("c", conda=conda, **other)])
    assert ("EA215", "conda/packages/numpy/version") == (finding.rule, finding.path)
    assert ["packages/distributions/numpy/version"] == [drift.path for drift in finding.following]


def test_distribution_of_another_version_than_its_conda_package_is_told_too() -> None:
    """Conda brought one version and pip wrote another over it: both are told."""
    inside = {"packages": {"distributions": {"numpy": {"version": "1.26.4"}}}}
    nodes = [training_node(node, **inside) for node in ("a", "b")]
    odd = training_node(
        "c",
        conda={"packages": {"numpy": package("2.0.1"), "pytorch": package("2.4.1")}},
        packages={"distributions": {"numpy": {"version": "2.1.0"}}},
    )
    (finding,) = findings([*nodes, odd])
    assert ["conda/packages/numpy/version", "packages/distributions/numpy/version"] == [
        drift.path for drift in finding.drifts
    ]


def test_hash_seed_that_one_node_lacks_is_a_warning() -> None:
    """Unset is a seed of its own for each process."""
    seeded = {"nccl": {}, "variables": {"PYTHONHASHSEED": "0"}}
    nodes = [training_node(node, env=seeded) for node in ("a", "b")]
    found = findings([*nodes, training_node("c", env={"nccl": {}, "variables": {}})])
    assert [("EA217", "warning", ("c",))] == brief(found)


def test_cuda_library_that_differs_is_an_error_with_its_file() -> None:
    """Another cuDNN under the same torch."""

    def node(name: str, version: str, path: str) -> Fingerprint:
        nccl = {"version": "2.21.5", "origin": "env"}
        return training_node(name, libraries={"nccl": nccl, "cudnn": {"version": version, "path": path}})

    nodes = [node(name, "9.1.0", "{site}/libcudnn.so.9") for name in ("a", "b")]
    (finding,) = findings([*nodes, node("c", "9.0.0", "/usr/lib/libcudnn.so.9")])
    assert ("EA220", "error", ("c",), "cudnn differs") == (*brief([finding])[0], finding.message)
    assert ("cudnn on c: /usr/lib/libcudnn.so.9",) == finding.evidence


def test_other_copy_of_the_same_version_is_a_warning() -> None:
    """It changes with the next update of the system, on that node alone."""
    nodes = [*HEALTHY, training_node("node05", libraries={"nccl": {"version": "2.21.5", "origin": "system"}})]
    assert [("EA221", "warning", ("node05",))] == brief(findings(nodes))


def checkout(version: str = "0.1.0", commit: str = "1afe8c1a", **facts: Any) -> Dict[str, Any]:
    """A section `packages` with an editable install."""
    row = {"version": version, "installer": "pip", "editable": True, "commit": commit, **facts}
    return {"distributions": {"trainer": {key: value for key, value in row.items() if value is not None}}}


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (checkout(commit="00ff00ff"), "trainer is at another commit"),
        # Its version is made of the commit.
        (checkout("0.1.1.dev3", "00ff00ff"), "trainer is at another commit"),
        (checkout(editable=None, commit=None), "trainer is editable on some nodes only"),
        (checkout(commit=None), "trainer is in a checkout on some nodes only"),
    ],
)
def test_checkout_that_differs_is_one_error(odd: Dict[str, Any], message: str) -> None:
    """The code that ranks run; that the repository differs too follows from it."""
    nodes = [training_node(node, packages=checkout(), git={"commit": "1afe8c1a"}) for node in ("a", "b")]
    found = findings([*nodes, training_node("c", packages=odd, git={"commit": "00ff00ff"})])
    assert [("EA218", "error", ("c",))] == brief(found)
    assert message == found[0].message
    assert ["git/commit"] == [drift.path for drift in found[0].following if drift.section == "git"]


def test_editable_install_of_another_version_at_one_commit_is_a_package_that_differs() -> None:
    """Its metadata was written at another time; the code is the same."""
    nodes = [training_node(node, packages=checkout()) for node in ("a", "b")]
    found = findings([*nodes, training_node("c", packages=checkout("0.2.0"))])
    assert [("EA216", "warning", ("c",))] == brief(found)


def with_libraries(name: str, **rows: Any) -> Fingerprint:
    """A node with these libraries beside its NCCL."""
    return training_node(name, libraries={"nccl": {"version": "2.21.5", "origin": "env"}, **rows})


PLUGIN = {"path": "/opt/hpcx/lib/libnccl-net.so", "version": "1.8.1", "origin": "other", "via": "ld.so.cache"}
MPI = {"path": "/usr/lib/libmpi.so.40", "version": "4.1.5", "origin": "system", "via": "default"}


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ({"mpi": MPI}, ("EA222", "error", "NCCL's network plugin is on some nodes only")),
        (
            {"nccl_net": {**PLUGIN, "version": "1.9.0"}, "mpi": MPI},
            ("EA222", "error", "NCCL's network plugin differs"),
        ),
        ({"nccl_net": PLUGIN, "mpi": {**MPI, "version": "4.1.2"}}, ("EA222", "warning", "MPI differs")),
        (
            {"nccl_net": {**PLUGIN, "path": "/opt/other/libnccl-net.so"}, "mpi": MPI},
            ("EA221", "warning", "another copy of nccl_net is loaded"),
        ),
    ],
)
def test_library_that_carries_messages_is_told_by_what_it_carries(
    odd: Dict[str, Any], expected: Tuple[str, str, str]
) -> None:
    """NCCL's plugin must be alike on all ranks; MPI and its like start them."""
    nodes = [with_libraries(name, nccl_net=PLUGIN, mpi=MPI) for name in ("a", "b")]
    (finding,) = findings([*nodes, with_libraries("c", **odd)])
    assert (*expected, ("c",)) == (finding.rule, finding.severity, finding.message, finding.nodes)


def test_library_that_differs_takes_no_other_package_along() -> None:
    """A libpng is no part of cuDNN, though its name begins alike."""
    nodes = [training_node(name, conda_packages={"libpng": package("1.6.43")}) for name in ("a", "b")]
    odd = training_node(
        "c",
        conda={
            "packages": {
                "numpy": package("1.26.4"),
                "pytorch": package("2.4.1"),
                "libpng": package("1.6.40"),
            }
        },
        libraries={
            "nccl": {"version": "2.21.5", "origin": "env"},
            "cudnn": {"version": "9.0.0", "origin": "env"},
        },
    )
    healthy = [
        training_node(
            each.node,
            conda=dict(each.sections["conda"].facts),
            libraries={
                "nccl": {"version": "2.21.5", "origin": "env"},
                "cudnn": {"version": "9.1.0", "origin": "env"},
            },
        )
        for each in nodes
    ]
    assert ["EA220", "EA216"] == [each.rule for each in findings([*healthy, odd])]


def test_library_that_is_nowhere_on_one_node_is_told_as_that() -> None:
    """With what is missing, which no pair of values says as well."""
    nodes = [with_libraries(name, missing=[]) for name in ("a", "b")]
    (finding,) = findings([*nodes, with_libraries("c", missing=["libcudnn.so.9"])])
    assert ("EA220", ("c",)) == (finding.rule, finding.nodes)
    assert "libcudnn.so.9 cannot be found for torch" == finding.message


@pytest.mark.parametrize(
    ("usual", "odd", "message"),
    [
        ({}, {"pth": {"prof.pth": "a1"}}, "the start-up file prof.pth is extra"),
        ({"pth": {"prof.pth": "a1"}}, {}, "the start-up file prof.pth is missing"),
        ({"pth": {"prof.pth": "a1"}}, {"pth": {"prof.pth": "b2"}}, "the start-up file prof.pth differs"),
        ({}, {"pth": {"prof.pth": "a1", "x.pth": "c3"}}, "2 start-up files are extra"),
        ({}, {"customized": {"sitecustomize": "a1"}}, "the start-up file sitecustomize is extra"),
    ],
)
def test_start_up_file_of_one_node_is_told_by_its_name(
    usual: Dict[str, Any], odd: Dict[str, Any], message: str
) -> None:
    """What runs before everything else, whether a .pth file or a sitecustomize."""

    def node(name: str, facts: Dict[str, Any]) -> Fingerprint:
        pth = {key: value for key, value in facts.items() if key == "pth"}
        customized = {key: value for key, value in facts.items() if key != "pth"}
        python = {"version": "3.11.8", "asked": "python3", **customized}
        return training_node(name, python=python, packages={"distributions": {}, **pth})

    (finding,) = findings([node("a", usual), node("b", usual), node("c", odd)])
    assert ("EA219", "warning", message) == (finding.rule, finding.severity, finding.message)
    assert ("c",) == finding.nodes


def test_start_file_of_a_node_with_another_patch_of_python_is_told_beside_it() -> None:
    """A patch brings no sitecustomize: whoever accepts the one has not accepted the other."""
    usual = {"version": "3.11.8", "asked": "python3", "customized": {}}
    odd = {**usual, "version": "3.11.9", "customized": {"sitecustomize": "a1"}}
    nodes = [training_node(name, python=odd if name == "c" else usual) for name in ("a", "b", "c")]
    found = judge(Evidence(tuple(nodes), drifts=compare(nodes)), Policy(levels={"EA212": "off"}))
    assert [("EA219", ("c",))] == [(one.rule, one.nodes) for one in found if one.severity != "incomplete"]


def test_start_up_file_takes_the_folders_along_that_it_may_have_added() -> None:
    """Its code says which; a file that only names folders is none."""
    nodes = [
        training_node(
            name,
            python={"version": "3.11.8", "asked": "python3", "path_outside_prefix": folders},
            packages={"distributions": {}, **pth},
        )
        for name, folders, pth in (
            ("a", [], {}),
            ("b", [], {}),
            ("c", ["/opt/code"], {"pth": {"code.pth": "a1"}}),
        )
    ]
    (finding,) = findings(nodes)
    assert ("EA219", ["python/path_outside_prefix"]) == (
        finding.rule,
        [drift.path for drift in finding.following],
    )


def with_variables(name: str, variables: Dict[str, str], **sections: Any) -> Fingerprint:
    """A node with some variables besides, and with what they lead to."""
    told = {
        "env": {"nccl": {}, "variables": {"OMP_NUM_THREADS": "8", **variables}},
        "python": {"version": "3.11.8", "asked": "python3", "flags": {"utf8_mode": 0}},
        "libraries": {"nccl": {"version": "2.21.5", "origin": "env"}, "copies": {}},
    }
    told["python"]["path_outside_prefix"] = []
    return training_node(name, **{**told, **sections})


@pytest.mark.parametrize(
    ("variables", "sections", "expected", "following"),
    [
        (
            {"PYTHONPATH": "/opt/code"},
            {"python": {"flags": {"utf8_mode": 0}, "path_outside_prefix": ["/opt/code"]}},
            ("EA210", "PYTHONPATH differs"),
            ["python/path_outside_prefix"],
        ),
        (
            {"PYTHONUTF8": "1", "PYTHONOPTIMIZE": "1"},
            {"python": {"flags": {"utf8_mode": 1}, "path_outside_prefix": []}},
            ("EA210", "2 variables of Python differ"),
            ["python/flags/utf8_mode"],
        ),
        (
            {"LD_LIBRARY_PATH": "/opt/nccl"},
            {
                "libraries": {
                    "nccl": {"version": "2.21.5", "origin": "env"},
                    "copies": {"nccl": {"/opt/nccl/libnccl.so.2": "2.26.2"}},
                }
            },
            ("EA223", "LD_LIBRARY_PATH differs"),
            ["libraries/copies/nccl"],
        ),
    ],
)
def test_variable_of_one_node_is_told_with_what_follows_from_it(
    variables: Dict[str, str], sections: Dict[str, Any], expected: Tuple[str, str], following: List[str]
) -> None:
    """One cause, one finding."""
    sections = {
        name: {"version": "3.11.8", "asked": "python3", **facts} if name == "python" else facts
        for name, facts in sections.items()
    }
    odd = with_variables("c", variables, **sections)
    (finding,) = findings([*(with_variables(name, {}) for name in "ab"), odd])
    assert (*expected, ("c",)) == (finding.rule, finding.message, finding.nodes)
    assert following == [drift.path for drift in finding.following]


@pytest.mark.parametrize(
    "policy",
    [
        Policy(levels={"EA210": "off", "EA223": "off"}),
        Policy(
            waivers=tuple(Waiver(rule, "2027-01-31", "of ours", "ops") for rule in ("EA210", "EA223")),
            today="2026-11-30",
        ),
    ],
)
def test_variable_that_is_accepted_takes_neither_torch_nor_a_library_along(policy: Policy) -> None:
    """What comes from PYTHONPATH or LD_LIBRARY_PATH is an error of its own."""
    other = {"nccl": {"version": "2.20.5", "origin": "system"}, "copies": {}}
    odd = [
        with_variables("d", {"PYTHONPATH": "/opt/code"}, torch={"version": "2.4.0", "cuda": "12.4"}),
        with_variables("e", {"LD_LIBRARY_PATH": "/opt/nccl"}, libraries=other),
    ]
    told = brief(findings([*(with_variables(name, {}) for name in "abc"), *odd], policy))
    assert [("EA213", "error", ("d",)), ("EA214", "error", ("e",))] == told[:2]


@pytest.mark.parametrize("place", [{"folder": "/opt/code"}, {"user_site": True}])
def test_package_from_outside_is_one_finding_and_what_it_hides_another(place: Dict[str, Any]) -> None:
    """No install from a lock helps: it is the folder that has to go."""
    own = {"distributions": {"einops": {"version": "0.8.0", "installer": "pip"}}, "duplicates": {}}
    row = {"version": "0.7.0", "installer": "pip", **place}
    odd = {"distributions": {"einops": row}, "duplicates": {"einops": ["0.7.0", "0.8.0"]}}
    nodes = [training_node(name, packages=own) for name in "ab"]
    found = findings([*nodes, training_node("c", packages=odd)])
    assert ["EA216", "EA248"] == [each.rule for each in found]
    assert "PYTHONNOUSERSITE" in found[0].hint
    assert ["packages/duplicates/einops"] == [drift.path for drift in found[1].following]


def test_hash_seed_takes_its_flag_along() -> None:
    """PYTHONHASHSEED=0 also switches hash randomisation off."""
    usual = {"version": "3.11.8", "asked": "python3", "flags": {"hash_randomization": 1}}
    odd = with_variables("c", {"PYTHONHASHSEED": "0"}, python={**usual, "flags": {"hash_randomization": 0}})
    (finding,) = findings([*(with_variables(name, {}, python=usual) for name in "ab"), odd])
    assert "EA217" == finding.rule


def test_folder_that_pythonpath_does_not_name_is_told_beside_it() -> None:
    """Another cause on the same node, such as a .pth file, is not hidden by the first."""
    usual = {"version": "3.11.8", "asked": "python3", "path_outside_prefix": ["/opt/shared"]}
    folders = ["/opt/code", "/opt/hidden", "/opt/shared"]
    odd = with_variables("c", {"PYTHONPATH": "/opt/code/"}, python={**usual, "path_outside_prefix": folders})
    nodes = [*(with_variables(name, {}, python=usual) for name in "ab"), odd]
    lock = training_node("a@lock", python=Section("python", 1, "absent"))
    judged = judge(Evidence(tuple(nodes), drifts=compare(nodes), references=(lock,)))
    (finding,) = [each for each in judged if each.rule == "EA210"]
    assert ("c: also on its path, and not by PYTHONPATH: /opt/hidden",) == finding.evidence


@pytest.mark.parametrize(("profile", "severity"), [("lenient", "info"), ("strict", "error")])
def test_variable_and_start_up_file_follow_the_profile_as_other_facts_do(profile: str, severity: str) -> None:
    """That they have a rule of their own makes them no milder for who wants bit for bit."""
    variables = {"PYTHONPATH": "/opt/code", "LD_PRELOAD": "/opt/jemalloc.so"}
    odd = with_variables("c", variables, packages={"distributions": {}, "pth": {"prof.pth": "a1"}})
    usual = [with_variables(name, {}, packages={"distributions": {}}) for name in "ab"]
    told = brief(findings([*usual, odd], Policy(profile=profile)))
    assert [(rule, severity, ("c",)) for rule in ("EA210", "EA219", "EA223")] == told
