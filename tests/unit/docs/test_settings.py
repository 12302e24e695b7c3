"""The settings tables in docs/operations.md are the options of the two programs."""

from collections import defaultdict

import pytest
import typer.main

from overnight_consumer.cli import app as consumer_app
from overnight_consumer.settings import environment_commands
from overnight_producer.cli import app as producer_app
from support.markdown import code, document, table

OPERATIONS = document("docs/operations.md")
APPS = {"`overnight`": producer_app, "`overnight-consumer`": consumer_app}
# Typer would cut a list at each space, so this one is read by the consumer itself.
READ_ELSEWHERE = {("`overnight-consumer`", ("--command",)): "OVERNIGHT_COMMAND"}


def options_of(app):
    """Return flags -> command -> (variable, default as the table writes it), of all that is not hidden."""
    group = typer.main.get_command(app)
    commands = {"": group, **group.commands}
    found = defaultdict(dict)
    for name, command in commands.items():
        if command.hidden:
            continue
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                found[tuple(option.opts)][name] = (option.envvar, as_text(option.default))
    return found


def as_text(default):
    if default is None or default in ("", [], ()):
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, list | tuple):
        return ", ".join(map(str, default))
    return str(default)


def expected_row(by_command):
    """Return variable, default and commands; where defaults differ, the rarer ones name their command."""
    variables = {variable for variable, _ in by_command.values()}
    assert len(variables) == 1, f"one flag with several variables: {by_command}"
    first = next(iter(by_command.values()))[1]
    defaults = [f"`{first}`" if first else ""]
    defaults += [
        f"{command} `{default}`" if default else f"{command} none"
        for command, (_, default) in by_command.items()
        if default != first
    ]
    return variables.pop(), "; ".join(defaults), sorted(name for name in by_command if name)


@pytest.mark.parametrize("program", APPS)
def test_every_option_is_in_the_table_and_nothing_else_is(program):
    rows = table(OPERATIONS, program)
    assert [tuple(code(row["flag"])) for row in rows] == list(options_of(APPS[program]))


@pytest.mark.parametrize("program", APPS)
def test_variables_defaults_and_commands_are_those_of_the_program(program):
    options = options_of(APPS[program])
    for row in table(OPERATIONS, program):
        flags = tuple(code(row["flag"]))
        variable, default, commands = expected_row(options[flags])
        variable = variable or READ_ELSEWHERE.get((program, flags))
        assert code(row["variable"]) == ([variable] if variable else []), row
        assert row["default"] == default, row
        if "of" in row:
            assert sorted(code(row["of"])) == commands, row
        assert len(row["meaning"]) > 10, row


def test_commands_of_a_consumer_are_read_from_their_variable_one_a_line(monkeypatch):
    (variable,) = READ_ELSEWHERE.values()
    monkeypatch.setenv(variable, "sh a.sh\n\npython b.py --fast\n")
    assert environment_commands() == ("sh a.sh", "python b.py --fast")


def test_the_commands_of_the_producer_are_those_of_the_table():
    group = typer.main.get_command(producer_app)
    named = [code(row["command"])[0].split()[1:2] for row in table(OPERATIONS, "Commands")]
    assert sorted("".join(words) for words in named) == sorted(["", *group.commands])
