"""Let the CPU play the one GPU of the real PyTorch, in every process that finds this folder on its path.

Code for CUDA then runs as it is, and computes where `cuda` is taken for `cpu`.
"""

import importlib.abc
import importlib.util
import sys


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            _change(module)

        spec.loader.exec_module = load_and_change
        return spec


def _change(torch):
    real = torch.device

    class Kind(type):
        def __instancecheck__(cls, value):
            return isinstance(value, real)

    class Device(metaclass=Kind):
        def __new__(cls, name):
            return real(_place(name))

    ones = torch.ones
    torch.device = Device
    torch.ones = lambda *size, device=None: ones(*size, device=_place(device))
    torch.backends.cuda.is_built = lambda: True
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_name = lambda number: "CPU in the role of a GPU"


def _place(name):
    return "cpu" if str(name).startswith("cuda") else name


sys.meta_path.insert(0, _Finder())
