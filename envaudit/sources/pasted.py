"""The text of collect_env taken apart: labelled values, the block of lscpu, the lists of packages.

It reaches us as people paste it: indented, quoted with `>`, behind a shell prompt, without its blank
lines, cut off at either end, with a SyntaxError of Python 2 before it, with the headings and padded
colons of vLLM's own version, out of a log or a parallel shell that puts a time, a rank or a node
before each line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Every label of a single value that some version prints, and those of vLLM.
LABELS = (
    "PyTorch version",
    "Is debug build",
    "CUDA used to build PyTorch",
    "ROCM used to build PyTorch",
    "XPU used to build PyTorch",
    "OS",
    "GCC version",
    "Clang version",
    "CMake version",
    "Libc version",
    "Python version",
    "Python platform",
    "Is CUDA available",
    "CUDA runtime version",
    "CUDA_MODULE_LOADING set to",
    "GPU models and configuration",
    "Nvidia driver version",
    "cuDNN version",
    "Is XPU available",
    "HIP runtime version",
    "MIOpen runtime version",
    "Is XNNPACK available",
    "Caching allocator config",
    "ROCM Version",
    "Neuron SDK Version",
    "vLLM Version",
)
_LABEL = re.compile(rf"(?P<label>{'|'.join(map(re.escape, LABELS))})[ \t]*:(?:[ \t]+(?P<value>.*))?\Z")
# Of lscpu, as they end every block of collect_env that has one.
_CPU_LABEL = re.compile(r"(?P<label>[A-Z][\w() /-]{1,40}?(?:\(s\))?)[ \t]*:(?:[ \t]+(?P<value>.*))?\Z")
_PACKAGE = re.compile(r"\[(?P<list>pip3?|conda)\][ \t]+(?P<rest>\S.*)\Z")
_QUOTE = re.compile(r"[ \t>]*")
_CPU_HEAD = re.compile(r"(?:CPU|CPU Info)[ \t]*:?\Z")
_LISTS_HEAD = re.compile(r"Versions of relevant libraries[ \t]*:?\Z")
_SEVERAL_LINES = ("GPU models and configuration", "cuDNN version")
# Of one value; a node has sixteen GPUs and some forty files of cuDNN.
_MAX_LINES = 2048
_RULE = re.compile(r"=+\Z")
# What a log puts before a line, by the line that every report has: `node07: `, `[rank0]: `, a time.
_LOGGED = re.compile(r"^(?P<prefix>[^\n#]{1,80}?)PyTorch version[ \t]*: ", re.MULTILINE)
_STAMP = re.compile(r"(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d(?:[.,]\d+)?)")


@dataclass
class Paste:
    """What stands in a paste.

    Attributes:
        values: label to its value, or the lines of it joined by newlines; empty where there is none.
        repeated: labels that stand there twice with different values.
        reports: how many reports there are.
        cpu: of lscpu, label to value.
        rows: `pip` and `conda` to the rows of their lists, which may be an answer such as
            "Could not collect".
    """

    values: dict[str, str] = field(default_factory=dict)
    repeated: set[str] = field(default_factory=set)
    reports: int = 1
    cpu: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[str]] = field(default_factory=dict)


def is_pasted(text: str) -> bool:
    """Whether the text is a collect_env, or a part of one that can be told."""
    text = _without_log(text)
    return (
        re.search(r"^[ \t>]*PyTorch version[ \t]*: ", text, re.MULTILINE) is not None
        or re.search(r"^[ \t>]*Versions of relevant libraries[ \t]*:", text, re.MULTILINE) is not None
        or re.search(r"^[ \t>]*\[pip3?\][ \t]+[\w.-]{1,100}==", text, re.MULTILINE) is not None
    )


def taken_apart(text: str) -> Paste:
    """The values of a paste; lines that are none of collect_env's are passed over."""
    paste = Paste()
    current, in_cpu = "", False
    text = _without_log(text)
    paste.reports = _count_of(text)
    further: dict[str, list[str]] = {}
    for raw in text.split("\n"):
        line = raw[_QUOTE.match(raw).end() :].rstrip()  # type: ignore[union-attr]
        package = _PACKAGE.match(line)
        label = _LABEL.match(line)
        if package:
            name = "conda" if package["list"] == "conda" else "pip"
            paste.rows.setdefault(name, []).append(package["rest"].strip())
            current, in_cpu = "", False
        elif label:
            current, in_cpu = label["label"], False
            _put(paste, current, (label["value"] or "").strip())
        elif _CPU_HEAD.match(line):
            current, in_cpu = "", True
        elif _LISTS_HEAD.match(line):
            current, in_cpu = "", False
        elif in_cpu:
            of_cpu = _CPU_LABEL.match(line)
            if of_cpu:
                paste.cpu.setdefault(of_cpu["label"], (of_cpu["value"] or "").strip())
        elif current in _SEVERAL_LINES and line and not _RULE.match(line):
            further.setdefault(current, []).append(line)
        elif not line:
            # The list of GPUs ends with an empty line, where a paste has kept them.
            current = ""
    for name, lines in further.items():
        paste.values[name] = "\n".join([*filter(None, [paste.values[name]]), *lines[:_MAX_LINES]])
    return paste


def _without_log(text: str) -> str:
    """The text without what is before each line of one report in a log, where something is."""
    found = _LOGGED.search(text) if "PyTorch version" in text else None
    before = found["prefix"].rstrip() if found else ""
    if not before.strip(" \t>"):
        return text
    # Times go on from line to line; names of nodes and numbers of ranks must stay what they are.
    same = _STAMP.pattern.join(map(re.escape, _STAMP.split(before)))
    if re.search(rf"^{same}[ \t]*Is debug build[ \t]*:", text, re.MULTILINE) is None:
        return text
    return re.sub(rf"^{same}[ \t]*", "", text, flags=re.MULTILINE)


def _count_of(text: str) -> int:
    """How many reports a text holds: of each two lines that every one has; prose may repeat one of them."""
    return min(
        len(re.findall(rf"^[^\n#]{{0,80}}?{label}[ \t]*: ", text, re.MULTILINE))
        for label in ("PyTorch version", "Is debug build")
    )


def _put(paste: Paste, label: str, value: str) -> None:
    if label in paste.values and paste.values[label].split("\n")[0] != value:
        paste.repeated.add(label)
    paste.values.setdefault(label, value)
