"""The arrows in docs/architecture.md are the import contracts, and the map names what there is."""

import re
import tomllib

from support.markdown import ROOT, blocks, code, document, table

ARCHITECTURE = document("docs/architecture.md")
ARROWS = {row["what"]: code(row["only in"]) for row in table(ARCHITECTURE, "Who may import whom")}
PACKAGES = ("common/overnight_common", "producer/overnight_producer", "consumer/overnight_consumer")


def files():
    return [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def test_packages_that_live_in_one_place_are_those_of_the_contracts():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    found = {}
    for contract in contracts:
        for exception in contract.get("ignore_imports", []):
            module, _, package = exception.partition(" -> ")
            folder = module.partition(".")[0].removeprefix("overnight_")
            found.setdefault(f"`{package}`", []).append(f"{folder}/{module.replace('.', '/')}.py")
    assert found == {package: where for package, where in ARROWS.items() if package in found}
    assert {"`pika`", "`sqlite3`", "`typer`"} <= set(found)


def test_the_environment_is_read_where_the_table_says():
    readers = [
        str(path.relative_to(ROOT)) for path in files() if "os.environ" in path.read_text(encoding="utf-8")
    ]
    assert sorted(readers) == sorted(ARROWS["`os.environ`"])


def test_the_map_names_every_file_and_no_other():
    (drawn,) = [block.text for block in blocks(ARCHITECTURE) if block.language == "mermaid"]
    labels = re.findall(r'\w\["([^"/]+)"\]', drawn)
    assert len(labels) > 15
    named = {word for label in labels for word in re.findall(r"\w+", label)}
    stems = {path.stem for path in files() if not path.stem.startswith("__")}
    assert stems - named == set()
    assert named - stems <= {path.parent.name for path in files()}
