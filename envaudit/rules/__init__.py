"""Judgement: drifts and sections in, findings out, worst first.

A rule is one function in `rules/<subject>.py`; the file's name is its registration.
"""

from envaudit.rules.judging import Judgement, judge, judgement
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, Rule, all_rules, difference, rule

__all__ = [
    "Evidence",
    "Found",
    "Judgement",
    "Policy",
    "Rule",
    "all_rules",
    "difference",
    "judge",
    "judgement",
    "rule",
]
