"""What the options of `envaudit check` ask for."""

from __future__ import annotations

import argparse

import pytest

from envaudit.checks.collectives.asked import asked_of, place_in
from envaudit.checks.collectives.result import own_result
from envaudit.cli.check import _given_up, configure
from envaudit.cli.checkoptions import CheckAsk, asked_by
from envaudit.cli.meetingplan import arranged, arranged_here, hub_address
from envaudit.errors import UsageError
from envaudit.model import Fingerprint, Section
from tests.diff.nodes import fingerprint
from tests.rules.collectiveruns import telling


def ask(*words: str) -> CheckAsk:
    """What these words ask for."""
    parser = argparse.ArgumentParser()
    configure(parser)
    return asked_by(parser.parse_args(words))


def test_all_but_the_mtu_is_asked_for_by_default() -> None:
    """Collectives without having been asked for by name."""
    found = ask()
    assert (True, True, False, False) == (found.kernels, found.collectives, found.requested, found.mtu)
    assert ("checks", "collectives") == found.sections


@pytest.mark.parametrize(
    ("words", "kernels", "collectives", "requested"),
    [
        (("--only", "collectives"), False, True, True),
        (("--only", "kernels"), True, False, False),
        (("--ops", "gemm/fp32"), True, False, False),
        (("--ops", "all_reduce/sum/*"), False, True, True),
        (("--ops", "gemm,barrier"), True, True, False),
        (("--ops", "all_*"), False, True, True),
        (("--ops", "*"), True, True, False),
        (("--ops", "no_such_thing"), True, False, False),
        (("--nproc", "2"), True, True, True),
        (("--sizes", "3,5"), True, True, True),
    ],
)
def test_parts_and_operations_choose_what_runs(
    words: tuple[str, ...], kernels: bool, collectives: bool, requested: bool
) -> None:
    """A name that is neither is asked of the kernels, which say that there is none."""
    found = ask(*words)
    assert (kernels, collectives, requested) == (found.kernels, found.collectives, found.requested)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--only", "collectives", "--ops", "no_such_thing"), "no_such_thing"),
        (("--only", "collectives,mtu", "--ops", "all_reduce,gemm/*"), "gemm/*"),
        (("--only", "kernels", "--ops", "all_reduce,barrier"), "all_reduce,barrier"),
        (("--only", "mtu", "--ops", "gemm"), "gemm"),
    ],
)
def test_operation_of_no_part_that_is_asked_for_is_refused(words: tuple[str, ...], named: str) -> None:
    """Nothing would run, and a run of nothing would pass."""
    with pytest.raises(UsageError) as caught:
        ask(*words)
    expected = f"--ops {named}: no operation of {words[1].replace(',', ', ')} is called so. Correct"
    assert str(caught.value).startswith(expected)


def test_mtu_alone_runs_nothing_else() -> None:
    """Either way of asking meets."""
    found = ask("--only", "mtu")
    assert (False, False, True, True) == (found.kernels, found.collectives, found.mtu, found.meets)
    assert ask("--mtu-probe").mtu


def test_number_of_ranks_is_of_this_machine_or_of_each_node() -> None:
    """Not of both."""
    assert (2, 4) == (ask("--nproc", "2").local_ranks, ask("--nproc-per-node", "4").local_ranks)
    for words in (("--nproc", "2", "--nproc-per-node", "2"), ("--nproc", "2", "--nodes", "a")):
        with pytest.raises(UsageError, match="--nproc is for this machine alone"):
            ask(*words)


@pytest.mark.parametrize(
    "words",
    [
        ("--sizes", "0"),
        ("--sizes", "3,,5"),
        ("--sizes", "99999999999"),
        ("--dtypes", "fp32,fp31"),
        ("--stall", "0"),
        ("--total", "2h"),
        ("--nproc", "0"),
        ("--hub", "nowhere"),
        ("--only", "collective"),
    ],
)
def test_options_out_of_range_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Each by its name."""
    with pytest.raises(SystemExit):
        ask(*words)
    assert f"argument {words[0]}" in capsys.readouterr().err


def node(name: str, *addresses: str, up: bool = True) -> Fingerprint:
    """A node with an interface of these addresses."""
    rows = {f"eth{place}": {"up": up, "addresses": [text]} for place, text in enumerate(addresses)}
    return fingerprint(name, network=Section("network", 1, "ok", {}, {"interfaces": rows}))


def test_hub_has_the_address_in_whose_subnet_the_others_are() -> None:
    """Not that of the machine's other network, nor a link-local one."""
    first = node("n1", "192.168.7.1/24", "10.0.0.1/16", "fe80::1/64")
    assert "10.0.0.1" == hub_address([first, node("n2", "10.0.3.2/16"), node("n3", "10.0.9.3/16")])


def test_hub_without_an_address_is_to_be_given() -> None:
    """An interface that is down is no way."""
    with pytest.raises(UsageError, match="--hub HOST:PORT"):
        hub_address([node("n1", "10.0.0.1/16", up=False), node("n2", "10.0.0.2/16")])


def test_each_node_is_told_its_own_place_and_all_the_same_secret() -> None:
    """What they are told comes back whole."""
    nodes = [node("n1", "10.0.0.1/16"), node("n2", "10.0.0.2/16")]
    found = arranged(ask("--nproc-per-node", "2", "--join", "7"), nodes, argparse.Namespace(hub=None))
    first, second = (asked_of({**found.options, **found.own[name]}) for name in ("n1", "n2"))
    assert (0, 1) == (first.seat.index, second.seat.index)
    assert ("10.0.0.1", first.seat.port) == (second.seat.host, second.seat.port)
    assert (first.token, 2, 7.0, ("n1", "n2")) == (
        second.token,
        second.local_ranks,
        second.limits.join_s,
        second.names,
    )
    assert 32 <= len(first.token)
    assert first.kernels


def test_this_machine_meets_itself_on_a_port_that_the_kernel_chooses() -> None:
    """On the loopback."""
    found = asked_of(arranged_here(ask("--nproc", "2"), "n1").options)
    assert ("127.0.0.1", 0, 1, 2) == (found.seat.host, found.seat.port, found.seat.count, found.local_ranks)


@pytest.mark.parametrize(
    "wrong",
    [
        {"meeting_index": 2, "meeting_count": 2},
        {"meeting_port": 70000},
        {"meeting_port": "x"},
        {"meeting_local_ranks": -1},
        {"meeting_stall_s": 0},
        {"collective_dtypes": "fp31"},
    ],
)
def test_request_that_makes_no_sense_is_refused_by_the_node(wrong: dict[str, object]) -> None:
    """It need not come from this program."""
    with pytest.raises((TypeError, ValueError)):
        asked_of(wrong)


def test_node_that_is_told_no_place_finds_itself_by_its_name() -> None:
    """What goes through gateways is the same for all; a stranger does not take part."""
    import os

    own = os.uname().nodename
    assert 1 == place_in(["node77", own])
    with pytest.raises(ValueError, match="is none of the nodes"):
        place_in(["node77"])


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("silent", 3.0), ("hub_lost", 3.0), ("unreachable", 3.0 + 20), ("lost", None), ("done", None)],
)
def test_node_that_another_one_does_not_hear_has_an_end_before_its_time(
    kind: str, seconds: float | None
) -> None:
    """A hub that may begin to listen late has as long again as the others had to find it."""
    (answer,) = telling(own_result(kind, "said by node02", ["node01"]), ["node02"])
    given_up = _given_up(ask("--only", "collectives", "--stall", "3", "--join", "20"), answer)
    assert ({} if seconds is None else {"node01": seconds}) == given_up


def test_node_that_another_one_does_not_hear_may_finish_its_kernels() -> None:
    """They take their time on a machine that lives."""
    (answer,) = telling(own_result("unreachable", "said by node02", ["node01"]), ["node02"])
    asked = ask("--stall", "3", "--join", "20")
    assert {"node01": 23.0 + asked.plan.budget_s} == _given_up(asked, answer)
