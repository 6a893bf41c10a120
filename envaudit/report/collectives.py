"""Runs of collectives as lines: who took part, how fast it was, and the links between ranks as heat."""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from envaudit.model.checked import map_in, text_in
from envaudit.model.collective import DONE, NOT_TESTED, Case, Collectives, Figure, texts_in
from envaudit.model.nodeset import fold
from envaudit.report.lines import Line, Span, line
from envaudit.report.screen import printable

_BAD = ("wrong", "error")
_WORDS = {"not_run": "not run"}
# Of the links' table so many ranks are shown; more have no room on a line.
_MOST_RANKS = 32
# From slow to fast, relative to the fastest link.
_HEAT = "·░▒▓█"


def collective_lines(runs: Sequence[Collectives], verbose: bool) -> List[Line]:
    """A block for each run; with `verbose` a row for each collective."""
    lines: List[Line] = []
    for run in runs:
        if lines:
            lines.append(())
        lines += _block(run, verbose)
    return lines


def _block(run: Collectives, verbose: bool) -> List[Line]:
    lines = [line(Span(printable(_head(run)), "head"))]
    if run.ended.kind not in (DONE, NOT_TESTED) or (run.asked and not run.cases):
        style = (
            "incomplete" if run.ended.kind in (NOT_TESTED, "missing", "unreachable", "deadline") else "error"
        )
        lines.append(line(Span(f"  {_ending(run)}", style)))
    rows = list(_rows(run, verbose))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for *cells, style in rows:
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths)).rstrip()
        lines.append(line(Span(f"  {printable(text)}", style)))
    for text in (*_remarks(run), *_roads(run), *_mtus(run)):
        lines.append(line(Span(f"  {printable(text)}", "dim")))
    return [*lines, *_links(run)]


def _head(run: Collectives) -> str:
    """`4 ranks on node[01-02] (gloo)`."""
    nodes = fold(sorted({each.node for each in run.ranks}) or run.said_by)
    if run.world < 2:
        return f"{nodes}: {'collectives' if run.asked else 'path MTU'}"
    backend = f" ({run.backend})" if run.backend else ""
    return f"{run.world} ranks on {nodes}{backend}"


def _ending(run: Collectives) -> str:
    kind = "not tested" if run.ended.kind == NOT_TESTED else run.ended.kind.replace("_", " ")
    return printable(f"{kind.upper()}: {run.ended.text}" if run.ended.text else kind.upper())


def _rows(run: Collectives, verbose: bool) -> Iterator[Tuple[str, str, str, str]]:
    """Collective, result, rate, style."""
    families: Dict[str, List[Case]] = {}
    for case in run.cases.values():
        families.setdefault(case.name if verbose else case.name.split("/")[0], []).append(case)
    for family, cases in families.items():
        counts = {status: sum(case.status == status for case in cases) for status in (*_BAD, "not_run", "ok")}
        told = [f"{count} {_WORDS.get(status, status)}" for status, count in counts.items() if count]
        bad = counts["wrong"] or counts["error"]
        style = "error" if bad else "incomplete" if not counts["ok"] else ""
        figures = [run.figures[case.name] for case in cases if case.name in run.figures]
        yield family, ", ".join(told), _rate(figures), style


def _rate(figures: Sequence[Figure]) -> str:
    """`busbw 371 GB/s, algbw 198 GB/s at 256 MiB`: of the largest size, where bandwidth is what counts."""
    rated = [each for each in figures if each.busbw_milli_gbps is not None]
    if not rated:
        shortest = min((each.median_ns for each in figures if each.median_ns), default=None)
        return f"{_time(shortest)}" if shortest else ""
    most = max(each.size_bytes for each in rated)
    best = max(
        (each for each in rated if each.size_bytes == most), key=lambda each: each.busbw_milli_gbps or 0
    )
    return f"busbw {_gbps(best.busbw_milli_gbps)}, algbw {_gbps(best.algbw_milli_gbps)} at {_size(most)}"


def _remarks(run: Collectives) -> Iterator[str]:
    if run.latency_ns:
        yield f"latency {_time(run.latency_ns)}"
    rank = run.straggler.get("rank")
    late_ns = run.straggler.get("late_ns")
    if isinstance(rank, int) and isinstance(late_ns, int):
        often = f"{run.straggler.get('items')} of {run.straggler.get('of')} collectives"
        yield f"{run.words_of(rank)} is the last to come in {often}, by {_time(late_ns)}"
    clocks = [abs(offset) + bound for offset, bound in run.clock.values()]
    if len(clocks) > 1:
        yield f"clocks within {_time(max(clocks))} of the hub's"
    if run.authenticated is False and len({each.node for each in run.ranks}) > 1:
        yield "the nodes met unauthenticated"


def _roads(run: Collectives) -> Iterator[str]:
    """`NCCL 2.27.5: inside P2P/CUMEM, between nodes NET/IB/GDRDMA over mlx5_0:1/IB; NVLS`, alike folded."""
    told: Dict[str, List[int]] = {}
    for name, row in run.road.items():
        told.setdefault(_road(row), []).append(int(name))
    for words, ranks in told.items():
        who = "" if len(told) == 1 else f" ({run.ranks_in_words(sorted(ranks))})"
        yield f"{words}{who}"
    if run.world > 1 and not run.road and run.ended.kind == DONE:
        yield "NCCL's road: NOT TESTED (no GPU)" if run.backend != "nccl" else "NCCL's road: it wrote no log"


def _road(row: Mapping[str, object]) -> str:
    parts = []
    for key, words in (("local", "inside"), ("remote", "between nodes")):
        ways = sorted(map_in(row, key))
        if ways:
            parts.append(f"{words} {', '.join(ways)}")
    devices = texts_in(row, "devices")
    over = f" over {', '.join(devices)}" if devices and map_in(row, "remote") else ""
    nvls = "; NVLS" if row.get("nvls") is True else ""
    version = text_in(row, "version")
    return (
        f"NCCL {version or 'of unknown version'}: {', '.join(parts) or 'no connection is told'}{over}{nvls}"
    )


def _mtus(run: Collectives) -> Iterator[str]:
    """`path MTU 9000 between node[01-04]`; what deviates a finding tells."""
    sizes: Dict[int, List[str]] = {}
    for node in run.mtu:
        row = map_in(run.mtu, node)
        own = row.get("mtu")
        if isinstance(own, int) and not map_in(row, "peers") and row.get("equal"):
            sizes.setdefault(own, []).append(node)
    for size, nodes in sizes.items():
        yield f"path MTU {size} from {fold(nodes)} to all that it was tried to"


def _links(run: Collectives) -> List[Line]:
    """The bandwidth between ranks that ran in pairs, darker where faster; a row and a column a rank."""
    ranks = sorted({rank for pair in run.links for rank in pair})
    if not ranks:
        return []
    most = max(run.links.values()) or 1
    shown = ranks[:_MOST_RANKS]
    width = max(len(str(rank)) for rank in shown)
    head = f"  links, GB/s: {_HEAT[0]} up to {_number(most / (len(_HEAT) - 1))}, {_HEAT[-1]} {_number(most)}"
    lines = [line(Span(head, "dim"))]
    if len(shown) <= 8:
        cells = [[_cell(run, row, column) for column in shown] for row in shown]
        wide = max(width, *(len(cell) for row in cells for cell in row))
        lines.append(line(f"  {'':>{width}}  " + "  ".join(f"{rank:>{wide}}" for rank in shown)))
        for rank, row in zip(shown, cells):
            heat = "".join(_heat(run, rank, column, most) for column in shown)
            lines.append(
                line(f"  {rank:>{width}}  " + "  ".join(f"{cell:>{wide}}" for cell in row) + f"   {heat}")
            )
    else:
        for rank in shown:
            heat = "".join(_heat(run, rank, column, most) for column in shown)
            lines.append(line(f"  {rank:>{width}}  {heat}"))
    if len(ranks) > len(shown):
        lines.append(line(Span(f"  {len(ranks) - len(shown)} more ranks (--format json)", "dim")))
    return lines


def _rate_of(run: Collectives, first: int, second: int) -> int:
    """-1 where these two did not run as a pair."""
    return run.links.get((first, second), run.links.get((second, first), -1))


def _cell(run: Collectives, first: int, second: int) -> str:
    rate = _rate_of(run, first, second)
    return "" if rate < 0 else _number(rate)


def _heat(run: Collectives, first: int, second: int, most: int) -> str:
    rate = _rate_of(run, first, second)
    return " " if rate < 0 else _HEAT[min(len(_HEAT) - 1, rate * len(_HEAT) // (most + 1))]


def _number(milli: float) -> str:
    return f"{milli / 1000:.3g}"


def _gbps(milli: object) -> str:
    if not isinstance(milli, int):
        return "?"
    return f"{_number(milli)} GB/s" if milli else "under 0.001 GB/s"


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes} B"


def _time(ns: object) -> str:
    value = float(ns) if isinstance(ns, int) else 0.0
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} ns"
