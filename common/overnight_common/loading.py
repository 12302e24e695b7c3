"""Find a method by its name, and import it.

`find_method` imports nothing and is for the driver and a consumer's parent; `load_method` and `methods_in`
run the user's code and belong in a child or in `overnight_common.describe`.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import inspect
import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from overnight_common.errors import BadInputError, MethodUnavailableError
from overnight_common.facts import MethodFacts, facts_of
from overnight_common.fingerprints import method_fingerprint
from overnight_common.modules import find_in, find_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

ENTRY_POINTS = "overnight.methods"
# What ships with us is known by its bare name even where the wheel is not installed.
_SHIPPED = {"shapley": "overnight_consumer.methods.shapley:shapley"}


class MethodAddress(NamedTuple):
    """Hold where a method is: its module, the attribute in it, and the folder that the module lies in."""

    module: str
    attribute: str
    root: Path


class LoadedMethod(NamedTuple):
    """Hold a method that was imported.

    Attributes:
        name: the name that was asked for, or under which it is served.
        target: the function or class.
        facts: those of `@method`, else the defaults.
        fingerprint: hash of its code, see `method_fingerprint`.
        is_class: True if it must be built before it can be called.
    """

    name: str
    target: Callable[..., Any]
    facts: MethodFacts
    fingerprint: str
    is_class: bool


def split_name(name: str) -> tuple[str, str] | None:
    """Return module and attribute of `module:attribute`, or None if `name` is not of that form."""
    module, colon, attribute = name.partition(":")
    dotted = [*module.split("."), *attribute.split(".")]
    return (module, attribute) if colon and all(part.isidentifier() for part in dotted) else None


def known_methods() -> dict[str, str]:
    """Return the methods known by a bare name, as name -> `module:attribute`."""
    found = {point.name: point.value for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    return {**_SHIPPED, **found}


def find_method(name: str, source: Path) -> MethodAddress:
    """Return where the method is; imports nothing, so the attribute may still turn out to be missing.

    Args:
        name: `module:function` (looked for in `source`, then among what is installed) or a bare name.
        source: the user's source folder.

    Raises:
        BadInputError: there is no such method or module; names the near ones.
    """
    known = known_methods()
    parts = split_name(known.get(name, name))
    if parts is None:
        raise BadInputError(_unknown(name, sorted(known), source))
    module, attribute = parts
    found = find_module(module, source)
    if found is None:
        near = difflib.get_close_matches(module, _modules_in(source))
        raise BadInputError(
            f"method {name!r}: there is no module {module!r} in {source.absolute()}, nor is one installed"
            f"{_did_you_mean(near)}; name the folder that holds it with --source"
        )
    return MethodAddress(module, attribute, found.root)


def load_method(name: str, source: Path) -> LoadedMethod:
    """Import the method; runs the user's code.

    Raises:
        BadInputError: there is no such method or module.
        MethodUnavailableError: importing it failed; carries the traceback.
    """
    address = find_method(name, source)
    fingerprint = method_fingerprint(address.module, source)
    module = _import(address.module, source)
    with _users_code(f"{name} cannot be had"):
        target = _attribute(module, address.attribute)
    if not callable(target):
        raise MethodUnavailableError(f"{name} is a {type(target).__name__}, not a function or class")
    if inspect.isclass(target) and not any("__call__" in vars(base) for base in target.__mro__):
        raise MethodUnavailableError(
            f"{name} is a class without __call__, which would be called for each batch"
        )
    return _loaded(name, target, fingerprint)


def methods_in(module: str, source: Path) -> list[LoadedMethod]:
    """Import a module and return all that is marked with `@method` there; raises as `load_method` does."""
    if find_module(module, source) is None:
        near = difflib.get_close_matches(module, _modules_in(source))
        raise BadInputError(
            f"there is no module {module!r} in {source.absolute()}, nor is one installed{_did_you_mean(near)}"
        )
    fingerprint = method_fingerprint(module, source)
    found: dict[int, LoadedMethod] = {}
    for attribute, target in vars(_import(module, source)).items():
        facts = facts_of(target) if callable(target) else None
        if facts is not None:
            name = facts.name or f"{module}:{attribute}"
            found.setdefault(id(target), _loaded(name, target, fingerprint))
    return list(found.values())


def _loaded(name: str, target: Callable[..., Any], fingerprint: str) -> LoadedMethod:
    return LoadedMethod(name, target, facts_of(target) or MethodFacts(), fingerprint, inspect.isclass(target))


def _import(module: str, source: Path) -> ModuleType:
    folder = str(source.absolute())
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    with _users_code(f"module {module!r} cannot be imported"):
        imported = importlib.import_module(module)
    due = find_in(source.absolute(), module)
    came = getattr(imported, "__file__", None)
    if due is not None and due.path is not None and came is not None and not due.path.samefile(came):
        raise MethodUnavailableError(
            f"module {module!r} came from {came} and not from {due.path}: another module has that name; "
            "rename your file"
        )
    return imported


def _attribute(module: ModuleType, dotted: str) -> Any:
    target: Any = module
    for part in dotted.split("."):
        owner = target
        target = getattr(owner, part, None)
        if target is None:
            near = difflib.get_close_matches(part, _callables_in(owner))
            raise MethodUnavailableError(f"module {module.__name__!r} has no {dotted!r}{_did_you_mean(near)}")
    return target


@contextlib.contextmanager
def _users_code(what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into MethodUnavailableError."""
    try:
        yield
    except (KeyboardInterrupt, MethodUnavailableError):
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        raise MethodUnavailableError(
            f"{what}: {_one_line(error)}", _traceback_text(error), missing
        ) from error


def _one_line(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the program (SystemExit: {error.code}); guard that with `if __name__ == '__main__':`"
    return traceback.format_exception_only(error)[-1].strip()


def _traceback_text(error: BaseException) -> str:
    """Return the traceback from the first line of the user's own code on."""
    here = error.__traceback__
    while here is not None and _is_machinery(here.tb_frame.f_code.co_filename):
        here = here.tb_next
    return "".join(traceback.format_exception(type(error), error, here))


def _is_machinery(filename: str) -> bool:
    return filename in (__file__, importlib.__file__) or filename.startswith("<frozen importlib")


def _unknown(name: str, known: list[str], source: Path) -> str:
    module, colon, attribute = name.partition(":")
    if colon:
        example = f"mylib.baselines:{attribute or 'function'}"
        return f"method {name!r} is not of the form module:function, for example {example}"
    near = difflib.get_close_matches(name, known)
    way_out = f"for a function of your own write its module too, for example {module or 'mylib'}:function"
    if name.endswith(".py") or find_module(name, source) is not None:
        way_out = f"write which function: {name.removesuffix('.py').replace('/', '.')}:function"
    return f"no method is called {name!r}{_did_you_mean(near)}; known are {', '.join(known)}; {way_out}"


def _did_you_mean(near: list[str]) -> str:
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def _modules_in(source: Path) -> list[str]:
    """Return the dotted names of the modules in the folder and in its packages, one level down."""
    try:
        files = [*source.glob("*.py"), *source.glob("*/*.py")]
    except OSError:
        return []
    names = [".".join(file.relative_to(source).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names]


def _callables_in(owner: object) -> list[str]:
    return (
        [name for name, value in vars(owner).items() if callable(value)] if hasattr(owner, "__dict__") else []
    )
