"""`envaudit gate --prolog`: this node alone, for a scheduler's prolog or an init container.

A prolog that ends with anything but 0 drains the node. So it ends with 1 for an error of a rule that
is listed under `[gate] prolog`, and with 0 whatever else happens: a crash, a typing error in the
policy, a hanging driver. That is told on standard error and in the system's log instead.

A process of its own reads and judges; this one is its watchdog. It never waits for what may not end:
a process inside a hanging driver cannot even be killed, and is left behind. Nothing is written to a
disk, no name is resolved, torch is not imported, and no variable of the job is believed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

if TYPE_CHECKING:
    import argparse

    from envaudit.model import Finding
    from envaudit.rules import Rule

# Faults of a GPU or its driver with which no job can run or compute right, and that somebody must
# repair: fallen off the bus, waits for a reset, Xid of the hardware, no /dev/nvidia-uvm, kernel module
# and libraries of two versions, no driver, NVLink fabric not joined, not healthy or not served, too
# many SRAM errors, row remapping failed.
DEFAULT_RULES = (
    *("EA310", "EA311", "EA314", "EA327", "EA334", "EA335"),
    *("EA345", "EA346", "EA347", "EA351", "EA352"),
)
LINE_CHARACTERS = 120
# The watchdog acts at the third, so that the process has ended at 8 s whatever hangs: a section has
# until the first, its process until the second.
SECTIONS_S, WORKER_S, WATCHDOG_S = 6.0, 6.8, 7.5

# That a section could not be read, which is told, and which drains nobody that does not list it.
_UNREAD = "EA902"
_ANSWER_BYTES = 1 << 16
_LOG_S = 1
_GRACE_S = 0.3
_FAULT = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)


class Outcome(NamedTuple):
    """What is said, and whether the node is to be drained.

    Attributes:
        line: at most `LINE_CHARACTERS`, without a line feed.
        drain: a listed rule found an error.
        untold: nothing could be judged; `line` says why.
    """

    line: str
    drain: bool = False
    untold: bool = False


def main(arguments: Sequence[str]) -> int:
    """All of `envaudit gate --prolog`; nothing is raised, and 1 means that the node has a fault."""
    try:
        outcome = _guarded(arguments)
    except BaseException as error:  # whatever it is, it is no fault of the node
        outcome = Outcome(f"not judged: {type(error).__name__}: {error}", untold=True)
    return _told(outcome)


def _guarded(arguments: Sequence[str]) -> Outcome:
    """What the worker answers, or why there is no answer."""
    began = time.monotonic()
    reading, writing = os.pipe()
    # What comes between here and their handlers is kept for these: ended by a signal is not ended with 0.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    worker = os.fork()
    if not worker:
        _work(arguments, writing)
    os.close(writing)

    def leave(number: int, _frame: object) -> NoReturn:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        _end(worker)
        name = signal.Signals(number).name
        why = f"not through in {WATCHDOG_S:g} s" if number == signal.SIGALRM else f"ended by {name}"
        os._exit(_told(Outcome(f"not judged: {why}", untold=True)))

    for each in _SIGNALS:
        signal.signal(each, leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    signal.setitimer(signal.ITIMER_REAL, WATCHDOG_S)
    said = bytearray()
    while len(said) < _ANSWER_BYTES:
        left_s = began + WORKER_S + _GRACE_S - time.monotonic()
        if left_s <= 0 or not select.select([reading], [], [], left_s)[0]:
            _end(worker)
            return Outcome(f"not judged: not through in {WORKER_S:g} s", untold=True)
        chunk = os.read(reading, _ANSWER_BYTES)
        if not chunk:
            break
        said += chunk
    status = _status(worker)
    if not said:
        return Outcome(f"not judged: the process that reads {_ending(status)}", untold=True)
    answer = json.loads(bytes(said).decode("ascii"))
    return Outcome(str(answer["line"]), answer["drain"] is True, answer["untold"] is True)


def _work(arguments: Sequence[str], writing: int) -> NoReturn:
    """In the worker: read, judge, answer, and leave whatever happens."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        # Of its own, so that all below it can be ended at once.
        os.setsid()
        from envaudit.probe.child import become_child, write_all

        become_child(WORKER_S)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        try:
            outcome = _judged(arguments)
        except BaseException as error:
            text = str(error) or type(error).__name__
            outcome = Outcome(f"not judged: {text}", untold=True)
        write_all(writing, json.dumps(outcome._asdict()).encode("ascii"))
    finally:
        os._exit(0)


def _judged(arguments: Sequence[str]) -> Outcome:
    """Read this node as far as the listed rules look at it, and judge.

    Raises:
        EnvauditError: the policy or an option is wrong.
    """
    from envaudit.cli.policyof import policy_of
    from envaudit.cli.thisnode import this_node
    from envaudit.rules import Evidence, judge
    from envaudit.rules.registry import rules_of
    from envaudit.transport.inband import read_here

    began = time.monotonic()
    options = _options(arguments)
    listed = _listed(options)
    policy = policy_of(options)
    rules = rules_of((*listed, _UNREAD))
    sections = _sections([rule for rule in rules if rule.id in listed])
    # The folder that a scheduler starts a prolog in is not the job's.
    found = read_here(this_node(), sections=sections, workdir="/", timeout_s=SECTIONS_S, launch="prolog")
    evidence = Evidence((found,), sections=tuple(sections), comparing=False, gate=True)
    findings = judge(evidence, policy, rules=rules)
    faults = [each for each in findings if each.severity == "error" and each.rule in listed]
    if faults:
        return Outcome(_line(faults), drain=True)
    gaps = [each for each in findings if each.severity == "incomplete"]
    if gaps:
        why = gaps[0].evidence[0] if gaps[0].evidence else ""
        return Outcome(f"not judged: {gaps[0].message}{f' ({why})' if why else ''}", untold=True)
    took = time.monotonic() - began
    return Outcome(f"PASS {', '.join(sections)}: none of {len(listed)} rules, {took:.1f} s")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    """The few options of a prolog; an option of the whole gate would promise what is not done here.

    Raises:
        UsageError: any other.
    """
    import argparse

    from envaudit.errors import UsageError

    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--prolog", action="store_true")
    for name in ("--policy", "--config"):
        parser.add_argument(name, metavar="FILE")
    options, rest = parser.parse_known_args(list(arguments))
    if rest:
        raise UsageError(f"--prolog goes with --policy FILE and --config FILE, not with {rest[0]}")
    return options


def _listed(options: argparse.Namespace) -> Tuple[str, ...]:
    """The rules of which an error drains: the policy's, or the default ones."""
    try:
        from envaudit.cli import configuration
    except ImportError:  # the one-file form: what was compiled in
        from envaudit.cli import compiled

        held = compiled.policy()
        return DEFAULT_RULES if held is None or held.prolog is None else held.prolog
    # Named files, the user's own and /envaudit.toml count, never one of the folder that this starts in.
    settings = configuration.load(options.config, "/", options.policy)
    options.configuration = settings
    said = any("prolog" in file.table.get("gate", {}) for file in settings.policy)
    return settings.gate.prolog if said else DEFAULT_RULES


def _sections(listed: Sequence[Rule]) -> List[str]:
    """What the rules look at, as far as it is read by default."""
    from envaudit.probe.registry import section_names

    wanted = {need for rule in listed for need in rule.needs}
    return sorted(wanted.intersection(section_names()) or {"gpu"})


def _line(faults: Sequence[Finding]) -> str:
    """`EA352 GPU 3: a bad memory row could not be remapped; drain (2 more: EA314 EA310)`."""
    first, others = faults[0], list(dict.fromkeys(each.rule for each in faults[1:]))
    more = f" ({len(faults) - 1} more: {' '.join(others)})" if others else ""
    end = f"; drain{more}"
    if len(end) > LINE_CHARACTERS // 2:
        end = f"; drain ({len(faults) - 1} more)"
    head = f"{first.rule} {first.message}"
    room = LINE_CHARACTERS - len(end)
    return (head if len(head) <= room else f"{head[: room - 3]}...") + end


def _told(outcome: Outcome) -> int:
    """Say it: a fault and a pass on standard output, anything else on standard error; log it."""
    text = "".join(one if " " <= one <= "~" else "?" for one in outcome.line)[:LINE_CHARACTERS]
    stream = 2 if outcome.untold else 1
    try:
        os.write(stream, f"{'envaudit: ' if outcome.untold else ''}{text}\n".encode("ascii"))
    except OSError:
        pass
    if outcome.drain or outcome.untold:
        _log(text, drain=outcome.drain)
    return _FAULT if outcome.drain else 0


def _log(text: str, *, drain: bool) -> None:
    """The system's log, in a process that ends by itself: a log whose buffer is full blocks."""
    try:
        pid = os.fork()
    except OSError:
        return
    if not pid:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_LOG_S)
            import syslog

            syslog.openlog("envaudit", syslog.LOG_PID, syslog.LOG_DAEMON)
            syslog.syslog(syslog.LOG_ERR if drain else syslog.LOG_WARNING, text)
        finally:
            os._exit(0)
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except OSError:
            return
        time.sleep(0.001)


def _end(worker: int) -> None:
    try:
        os.killpg(worker, signal.SIGKILL)
    except OSError:
        pass  # it has ended, or has no group of its own yet
    try:
        os.kill(worker, signal.SIGKILL)
    except OSError:
        pass


def _status(worker: int) -> Optional[int]:
    """Its wait status; None where it does not end in a moment."""
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.001)
    _end(worker)
    return None


def _ending(status: Optional[int]) -> str:
    from envaudit.probe.child import how_it_ended

    return how_it_ended(status)
