"""Methods are found by name and imported; what goes wrong is said with names and a way out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from overnight_common.errors import BadInputError
from overnight_common.loading import find_method, known_methods, split_name

METHODS = """
print("loud at import")
import os, sys
os.write(1, b"straight to the descriptor\\n")
from overnight_common import method

def plain(points, depth=3, *, rate): return points
@method(name="fast", per_point=True, variants={"cuda": "mylib.gpu:fast"})
def marked(point, rng, indices): return point
@method
class Model:
    def __init__(self, weights, device=None, size=1, **more): ...
    def load(self, device): ...
    def __call__(self, points, seeds, progress=None): ...
class Empty: ...
class Space:
    @staticmethod
    def inner(points): return points
again = marked
number = 3
"""


@pytest.fixture
def source(tmp_path):
    (tmp_path / "mylib").mkdir()
    (tmp_path / "mylib" / "__init__.py").write_text("")
    (tmp_path / "mylib" / "methods.py").write_text(METHODS)
    files = {
        "needs": "import no_such_library_at_all\n",
        "needs_inner": "def f():\n    import absent_thing\nf()\n",
        "fails": "def deep():\n    return 1 / 0\ndeep()\n",
        "ends": "import sys\nsys.exit(3)\n",
        "broken": "def (:\n",
        "lazy": "def __getattr__(name):\n    raise RuntimeError('not today')\n",
        "random": "def mine(x): return x\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def describe(name, source):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "overnight_common.describe", name, "--source", str(source)],
        capture_output=True,
        text=True,
        check=True,
        cwd=source,
    )
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout), done.stderr


def test_a_function_is_described_and_what_its_module_prints_is_kept_apart(source):
    found, printed = describe("mylib.methods:plain", source)

    assert found["ok"]
    assert found["parameters"] == ["depth", "rate"]
    assert found["required"] == ["rate"]
    assert found["wants"] == []
    assert not found["accepts_any"]
    assert not found["per_point"]
    assert not found["is_class"]
    assert "loud at import" in printed
    assert "straight to the descriptor" in printed


def test_the_facts_of_a_marked_function_are_described(source):
    found, _ = describe("mylib.methods:marked", source)

    assert found["per_point"]
    assert found["variants"] == {"cuda": "mylib.gpu:fast"}
    assert found["parameters"] == []
    assert found["wants"] == ["rng", "indices"]


def test_of_a_class_the_parameters_are_those_of_init_and_it_wants_what_call_and_load_ask_for(source):
    found, _ = describe("mylib.methods:Model", source)

    assert found["is_class"]
    assert found["parameters"] == ["weights", "device", "size"]
    assert found["required"] == ["weights"]
    assert found["accepts_any"]
    assert found["wants"] == ["seeds", "device", "progress"]


def test_builtins_and_dotted_attributes_can_be_methods(source):
    assert describe("time:sleep", source)[0]["ok"]
    assert describe("mylib.methods:Space.inner", source)[0]["ok"]


@pytest.mark.parametrize(
    ("name", "says", "missing"),
    [
        ("needs:f", "No module named 'no_such_library_at_all'", "no_such_library_at_all"),
        ("needs_inner:f", "absent_thing", "absent_thing"),
        ("fails:f", "ZeroDivisionError", None),
        ("ends:f", "SystemExit: 3", None),
        ("broken:f", "SyntaxError", None),
        ("lazy:f", "not today", None),
        ("mylib.methods:plian", "did you mean 'plain'", None),
        ("mylib.methods:number", "is a int, not a function", None),
        ("mylib.methods:Empty", "class without __call__", None),
        ("random:mine", "rename your file", None),
    ],
)
def test_a_module_that_is_there_but_cannot_be_used_keeps_its_fingerprint(source, name, says, missing):
    found, _ = describe(name, source)

    assert not found["ok"]
    assert says in found["error"]
    assert found["missing_module"] == missing
    assert found["module_found"]
    assert found["fingerprint"]


def test_the_traceback_begins_in_the_users_own_code(source):
    found, _ = describe("fails:f", source)

    assert "fails.py" in found["traceback"]
    assert "in deep" in found["traceback"]
    assert "ZeroDivisionError" in found["traceback"]
    assert "loading.py" not in found["traceback"]
    assert "importlib" not in found["traceback"]


def test_a_module_that_is_not_there_is_said_to_be_missing(source):
    found, _ = describe("mylib.method:f", source)

    assert not found["ok"]
    assert not found["module_found"]
    assert "did you mean 'mylib.methods'" in found["error"]


def test_threads_left_running_by_a_module_do_not_hold_the_answer(source):
    (source / "threads.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait).start()\ndef f(x): ...\n"
    )

    assert describe("threads:f", source)[0]["ok"]


def in_fresh_process(source, code):
    lines = ["import sys, json", "from pathlib import Path", "from overnight_common import loading", code]
    done = subprocess.run(
        [sys.executable, "-P", "-c", "\n".join(lines)], capture_output=True, text=True, check=True, cwd=source
    )
    return done.stdout.splitlines()[-1]


def test_all_marked_methods_of_a_module_are_found_once_each(source):
    code = "print([(m.name, m.is_class) for m in loading.methods_in('mylib.methods', Path())])"

    assert in_fresh_process(source, code) == "[('fast', False), ('mylib.methods:Model', True)]"


def test_finding_a_method_imports_neither_it_nor_numpy(source):
    code = (
        "address = loading.find_method('mylib.methods:plain', Path())\n"
        "print(address.module, address.attribute, address.root == Path.cwd(), "
        "'mylib' in sys.modules, 'numpy' in sys.modules)"
    )

    assert in_fresh_process(source, code) == "mylib.methods plain True False False"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shaply", "did you mean 'shapley'"),
        ("nothing", "known are"),
        ("mylib", "mylib:function"),
        ("mylib/methods.py", "mylib.methods:function"),
        ("mylib/methods.py:plain", "module:function"),
        ("mylib.methods:", "module:function"),
        (":f", "module:function"),
        ("", "no method"),
        ("absent:f", "--source"),
        ("mylib.methds:f", "did you mean 'mylib.methods'"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_the_way_out(source, name, says):
    with pytest.raises(BadInputError) as caught:
        find_method(name, source)

    assert says in str(caught.value)


def test_names_are_split_only_where_both_halves_are_names():
    assert split_name("a.b:c.d") == ("a.b", "c.d")
    for name in ("a", "a:", ":b", "a:b:c", "a b:c", "1a:b", "a..b:c", "/a:b"):
        assert split_name(name) is None


def test_what_ships_is_known_by_its_bare_name_and_an_entry_point_can_take_its_place(monkeypatch):
    from importlib import metadata

    assert known_methods()["shapley"].partition(":")[2] == "shapley"
    mine = metadata.EntryPoint("mine", "pack.mod:f", "overnight.methods")
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: [mine] if group == mine.group else [])
    assert known_methods()["mine"] == "pack.mod:f"
    assert "shapley" in known_methods()


def test_the_root_of_an_installed_method_is_where_its_package_lies(source):
    address = find_method("email.mime.text:MIMEText", source)

    assert (address.root / "email").is_dir()
    assert address.root != source
    assert isinstance(address.root, Path)
