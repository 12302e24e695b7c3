import io
import json

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from overnight_producer.views.tables import Table, make_console, print_json, print_line, print_table

TEXTS = st.text(alphabet=st.sampled_from("abc déü漢字"), max_size=60)


def table_of(rows):
    table = Table(
        ["job", "method", "points", "rate"], right=["points", "rate"], giving=["method"], leaving=["rate"]
    )
    for row in rows:
        table.add(*row)
    return table


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS), max_size=5), st.integers(10, 120))
def test_no_line_is_wider_than_the_terminal(rows, width):
    table = table_of(rows)
    lines = table.lines(width)
    assert len(lines) == len(rows) + 1
    assert all(line.cell_len <= width for line in lines)


def test_numbers_stand_at_the_right_and_nothing_hangs_over():
    lines = table_of([("a", "short", "7", "1 points/s"), ("bbbb", "m", "1,797", "")]).lines(None)
    assert [line.plain for line in lines] == [
        "job   method  points        rate",
        "a     short        7  1 points/s",
        "bbbb  m        1,797",
    ]


def test_where_it_is_narrow_the_long_column_gives_way_first_then_one_leaves():
    table = table_of([("k3f9", "a-very-long-method-name", "1,797", "12.4 points/s")])
    assert table.lines(50)[1].plain == "k3f9  a-very-long-method-n…   1,797  12.4 points/s"
    assert table.lines(30)[1].plain == "k3f9  a-very-long-met…   1,797"


def test_off_a_terminal_every_cell_is_whole_and_plain():
    stream = io.StringIO()
    print_table(make_console(stream), table_of([("[red]k", "x" * 300, "1", "")]))
    assert "x" * 300 in stream.getvalue()
    assert "[red]k" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_a_table_fits():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=40, color_system=None)
    print_table(console, table_of([("k", "x" * 300, "1", "")]))
    assert all(len(line) <= 40 for line in stream.getvalue().splitlines())


def test_lines_and_json_are_never_wrapped():
    stream = io.StringIO()
    console = make_console(stream, width=20)
    print_line(console, "y" * 100)
    print_json(console, {"text": "z" * 100 + "\udcff"})
    first, *rest = stream.getvalue().splitlines()
    assert first == "y" * 100
    assert json.loads("\n".join(rest)) == {"text": "z" * 100 + "\udcff"}
