"""Puts a fault into all_reduce of one process, in the interpreter that has this folder on its path.

ENVAUDIT_TEST_COLLECTIVE says which: `slow` takes its time, `hang` does not return once it is over,
`away` never takes part in it, `raise` ends in an exception as CUDA has them, `wrong` gives another sum. All
of them from the third collective on, at which the file that ENVAUDIT_TEST_MARK names is made. Only tests set
them.
"""

import os
import sys

_FAULT = os.environ.get("ENVAUDIT_TEST_COLLECTIVE", "")
_MARK = os.environ.get("ENVAUDIT_TEST_MARK", "")
_FROM = 3


def _arm(dist):
    sound = dist.all_reduce
    calls = [0]

    def all_reduce(tensor, *args, **kwargs):
        if dist.get_world_size() == 1:
            return sound(tensor, *args, **kwargs)
        calls[0] += 1
        if calls[0] < _FROM:
            return sound(tensor, *args, **kwargs)
        if _MARK:
            with open(_MARK, "w"):
                pass
        if _FAULT == "raise":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        import time

        while _FAULT == "away":
            time.sleep(0.1)
        time.sleep(0.1)
        work = sound(tensor, *args, **kwargs)
        if _FAULT == "wrong":
            tensor += 1
        while _FAULT == "hang":
            time.sleep(0.1)
        return work

    dist.all_reduce = all_reduce


class _Arming:
    """Finds torch.distributed as everybody does, and wraps one function of it once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch.distributed":
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


if _FAULT:
    sys.meta_path.insert(0, _Arming())
