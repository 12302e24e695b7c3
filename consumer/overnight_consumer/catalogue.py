"""Know what a child serves, and import a method when a task first names it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from overnight_common.errors import BadInputError, MethodUnavailableError
from overnight_common.loading import LoadedMethod, known_methods, load_method, methods_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_consumer.frames import Setup

COMMAND_PREFIX = "command:"


class Catalogue:
    """Find methods by the names under which a task may ask for them.

    A method is known by the name it was given to `--methods` with, by that of `@method(name=...)`, and by its
    address `module:function`; for a module it is all that is marked there.
    """

    def __init__(self, setup: Setup) -> None:
        self._given = setup.methods
        self._commands = setup.commands
        self._source = Path(setup.source)
        self._loaded: dict[str, LoadedMethod] = {}

    def command(self, name: str) -> str | None:
        """Return the text of the command that a task asks for, or None if it asks for a method.

        Raises:
            MethodUnavailableError: it is a command that is not served here.
        """
        if not name.startswith(COMMAND_PREFIX):
            return None
        text = name.removeprefix(COMMAND_PREFIX)
        if text not in self._commands:
            raise MethodUnavailableError(self._not_served(name))
        return text

    def method(self, name: str) -> LoadedMethod:
        """Return a method, imported now if this is the first time; runs the user's code.

        Raises:
            MethodUnavailableError: it is not served here, or cannot be imported.
        """
        found = self._loaded.get(name)
        if found is not None:
            return found
        if name in self._given:
            self._load(name)
        else:
            self._look_for(name)
        if name not in self._loaded:  # it is a module, of which only what is marked is served
            raise MethodUnavailableError(self._not_served(name))
        return self._loaded[name]

    def _look_for(self, name: str) -> None:
        """Import what is served until something there goes by this name."""
        failures = []
        for given in self._given:
            try:
                if given not in self._loaded:
                    self._load(given)
            except MethodUnavailableError as error:
                failures.append(str(error))
            if name in self._loaded:
                return
        raise MethodUnavailableError("; ".join([self._not_served(name), *failures]))

    def preload(self, kind: str) -> dict[str, str]:
        """Import the method if there is just one; returns its name and why it cannot be had, or nothing.

        A task that asks for it is answered with the whole failure.
        """
        if len(self._given) != 1 or self._commands:
            return {}
        (given,) = self._given
        try:
            self._load(given)
            if len({method.target for method in self._loaded.values()}) == 1:
                self.variant(next(iter(self._loaded.values())), kind)
        except MethodUnavailableError as error:
            return {given: str(error)}
        return {} if self._loaded else {given: f"nothing in module {given!r} is marked with @method"}

    def variant(self, method: LoadedMethod, kind: str) -> Callable[..., Any]:
        """Return what runs for a method on a kind of device: what it names for it, or itself.

        Raises:
            MethodUnavailableError: that cannot be imported here.
        """
        address = method.facts.variants.get(kind)
        if address is None:
            return method.target
        try:
            return load_method(address, self._source).target
        except BadInputError as error:
            raise MethodUnavailableError(f"for {kind}: {error}") from error

    def _load(self, given: str) -> None:
        known = known_methods()
        try:
            if ":" in given or given in known:
                method = load_method(given, self._source)
                self._note(method, given, method.facts.name, known.get(given))
            else:
                for method in methods_in(given, self._source):
                    self._note(method, method.name, f"{given}:{method.target.__qualname__}")
        except BadInputError as error:
            raise MethodUnavailableError(str(error)) from error

    def _note(self, method: LoadedMethod, *names: str | None) -> None:
        for name in names:
            if name is not None:
                self._loaded.setdefault(name, method)

    def _not_served(self, name: str) -> str:
        served = sorted({*self._given, *self._loaded, *(COMMAND_PREFIX + text for text in self._commands)})
        return f"{name!r} is not served by this consumer; it serves {', '.join(served)}"
