"""Read from a method's signature what it wants to be called with."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

WANTED = ("rng", "seeds", "device", "indices", "progress")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class CallShape(NamedTuple):
    """Describe how a method is called.

    Attributes:
        parameters: names that the user may set with `--param`.
        required: those of them without a default.
        accepts_any: True if any other name is taken too (`**kwargs`, or a signature that Python cannot tell).
        wants: which of `WANTED` it asks for by name.
    """

    parameters: tuple[str, ...]
    required: tuple[str, ...]
    accepts_any: bool
    wants: tuple[str, ...]


def call_shape(target: Callable[..., Any]) -> CallShape:
    """Return how a function or class is called.

    Of a function the first positional parameter is the batch or point, and belongs to neither list. The
    parameters of a class are those of `__init__`; it asks by name in `__call__` and in `load`.
    """
    if not inspect.isclass(target):
        return _shape(target, skip_first=True)
    built = _shape(target, skip_first=False, wanted=())
    asked = _asked_by(target, "__call__") | _asked_by(target, "load")
    return built._replace(wants=tuple(name for name in WANTED if name in asked))


def _asked_by(target: type, name: str) -> set[str]:
    function = getattr(target, name, None)
    # A class without a `__call__` of its own shows that of its metaclass, which is not the method.
    return set(_shape(function, skip_first=False).wants) if inspect.isfunction(function) else set()


def _shape(target: Callable[..., Any], *, skip_first: bool, wanted: tuple[str, ...] = WANTED) -> CallShape:
    try:
        found = list(inspect.signature(target).parameters.values())
    except (ValueError, TypeError):  # built-in functions may have none
        return CallShape((), (), True, ())
    if skip_first and found and found[0].kind in _POSITIONAL:
        found = found[1:]
    named = [parameter for parameter in found if parameter.kind in _NAMED]
    own = [parameter for parameter in named if parameter.name not in wanted]
    return CallShape(
        parameters=tuple(parameter.name for parameter in own),
        required=tuple(parameter.name for parameter in own if parameter.default is parameter.empty),
        accepts_any=any(parameter.kind is parameter.VAR_KEYWORD for parameter in found),
        wants=tuple(name for name in wanted if any(parameter.name == name for parameter in named)),
    )
