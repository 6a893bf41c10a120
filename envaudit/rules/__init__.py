"""Judgement: drifts and sections in, findings out, worst first.

A rule is one function in `rules/<subject>.py`; the file's name is its registration.
"""

from envaudit.rules.judging import judge
from envaudit.rules.registry import Evidence, Found, Policy, Rule, all_rules, rule

__all__ = ["Evidence", "Found", "Policy", "Rule", "all_rules", "judge", "rule"]
