"""Gives a rank a fault once it has joined its group, in the interpreter that has this folder on its path.

Nothing happens but where ENVAUDIT_TEST_FAULT is set: the JSON of a `faults.Fault`, or `{"raise": "text"}`
for an exception in its third all_reduce. Only tests set it.
"""

import json
import os
import sys

_RANK = "envaudit.checks.collectives.rank"


def _arm(module):
    real = module._join

    def join(task):
        store = real(task)
        fault = json.loads(os.environ["ENVAUDIT_TEST_FAULT"])
        if "raise" in fault:
            _raise_in_the_third(fault["raise"])
        else:
            from tests.checks.collectives.faults import Armed, Fault

            Armed(Fault(**fault))
        return store

    module._join = join


def _raise_in_the_third(text):
    import torch.distributed as dist

    real, calls = dist.all_reduce, []

    def all_reduce(*given, **named):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError(text)
        return real(*given, **named)

    dist.all_reduce = all_reduce


class _Arming:
    """Finds the module of a rank as everybody does, and arms it once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != _RANK:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        class Loader:
            def create_module(self, spec):
                return None

            def exec_module(self, module):
                execute(module)
                _arm(module)

        spec.loader = Loader()
        return spec


if "ENVAUDIT_TEST_FAULT" in os.environ:
    sys.meta_path.insert(0, _Arming())
