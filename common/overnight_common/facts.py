"""Attach facts to a method; a plain function works without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

T = TypeVar("T", bound=Callable[..., Any])
_ATTRIBUTE = "__overnight_facts__"


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """Describe how a method wants to be called.

    Attributes:
        name: the name it is served under; None means `module:function`.
        per_point: True if it takes one point, False if a batch, None if that is for the caller to say.
        device: `cpu`, `cuda` or `any`.
        variants: device kind -> the callable to use there instead, as `module:name` (imported only there).
        join: True if several small tasks may be joined into one call.
        memory_per_point_bytes: a hint for the largest batch that fits, or None.
    """

    name: str | None = None
    per_point: bool | None = None
    device: str = "any"
    variants: Mapping[str, str] = field(default_factory=dict)
    join: bool = False
    memory_per_point_bytes: int | None = None


@overload
def method(target: T, /) -> T: ...
@overload
def method(
    *,
    name: str | None = None,
    per_point: bool | None = None,
    device: str = "any",
    variants: Mapping[str, str] | None = None,
    join: bool = False,
    memory_per_point_bytes: int | None = None,
) -> Callable[[T], T]: ...
def method(target: Any = None, /, **facts: Any) -> Any:
    """Mark a function or class as a method and note facts about it; the callable itself is unchanged."""

    def attach(callable_: T) -> T:
        given = {**facts, "variants": dict(facts.get("variants") or {})}
        setattr(callable_, _ATTRIBUTE, MethodFacts(**given))
        return callable_

    return attach if target is None else attach(target)


def facts_of(target: object) -> MethodFacts | None:
    """Return the facts attached to a callable, or None if it was never marked."""
    found = getattr(target, _ATTRIBUTE, None)
    return found if isinstance(found, MethodFacts) else None
