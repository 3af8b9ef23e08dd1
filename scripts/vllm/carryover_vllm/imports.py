"""When vLLM is patched: in processes that serve requests, after they have imported vLLM's serving classes.

vLLM loads general plug-ins in every process it starts, and in the API server already while it builds its argument
parser: before logging is set up, and before the serving modules are imported (0.32, arg_utils.py). Engine and worker
processes load plug-ins too and never import these modules; they are left alone.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from carryover_vllm import patch
from carryover_vllm.log import warn_once


class AfterImport(MetaPathFinder):
    """Calls `act` once, after the first import of one of `modules`. The import itself is the stock one."""

    def __init__(self, modules: Sequence[str], act: Callable[[], None]) -> None:
        self._modules = modules
        self._act = act
        self._armed = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self._armed or name not in self._modules:
            return None
        self._armed = False  # also keeps the next line from coming back here
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.loader is not None:
                self._follow(spec.loader, name)
            return spec
        except Exception:
            warn_once("the import of vLLM's serving classes can't be followed; streams stay stock", trace=True)
            return None

    def _follow(self, loader: object, name: str) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if module.__name__ == name:
                self._act()

        loader.exec_module = exec_module


def register() -> None:
    """The entry point of vllm.general_plugins. May be called any number of times, in any process."""
    try:
        _register()
    except Exception:
        warn_once("can't be set up; streams stay stock", trace=True)


def _register() -> None:
    from carryover_vllm import __version__

    def install() -> None:
        patch.install(__version__)

    if any(module in sys.modules for module in patch.MODULES):
        install()
        return
    if any(isinstance(finder, AfterImport) for finder in sys.meta_path):
        return
    missing = [module for module in patch.MODULES if not exists(module)]
    if missing and multiprocessing.parent_process() is None:
        warn_once(f"this vLLM has no {', '.join(missing)}; what they serve stays stock")
    sys.meta_path.insert(0, AfterImport(patch.MODULES, install))


def exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
