"""The graph of includes has no arrow upwards: of the rooms of runtime/README.md each includes those above it alone.

And the modules of the Python package import one another in no circle.
"""

import ast
import functools
import graphlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {".cpp", ".hpp", ".h", ".cu", ".cuh"}


def rooms():
    """The rooms of the table, in its order."""
    page = (ROOT / "runtime" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|", page, re.M)
    return [name.rstrip("/") for row in rows for name in re.findall(r"`([\w.]+/?)`", row)]


#: What includes what is before it, and itself.
ORDER = ["templates", "generator", "runtime/include", *(f"runtime/{name}" for name in rooms())]


def room_of(path):
    parts = path.parts
    return "/".join(parts[:2]) if parts[0] == "runtime" else parts[0]


@functools.cache
def arrows():
    """(file, what it includes) of the tree's own files."""
    found = []
    for folder in ("templates", "generator", "runtime"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix not in SOURCES:
                continue
            searched = (file.parent, ROOT, ROOT / "templates", ROOT / "runtime" / "include")
            for name in re.findall(r'^#include "(.+)"$', file.read_text(encoding="utf-8"), re.M):
                where = next(one / name for one in searched if (one / name).is_file())
                found.append((file.relative_to(ROOT), where.relative_to(ROOT)))
    return found


def test_every_folder_of_the_runtime_is_a_room_of_its_table():
    folders = {one.name for one in (ROOT / "runtime").iterdir() if list(one.rglob("*.cpp"))}
    assert set(rooms()) == folders | {"capi.cpp"}
    assert len(rooms()) == len(set(rooms()))


@pytest.mark.parametrize("room", ORDER)
def test_a_room_includes_those_before_it_alone(room):
    after = ORDER[ORDER.index(room) + 1 :]
    upwards = [
        f"{file} includes {other}"
        for file, other in arrows()
        if room_of(file) == room and room_of(other) in after
    ]
    assert not upwards


def test_folders_of_operations_include_one_another_in_no_circle():
    folders = Path("runtime/operations")
    graph = {}
    for file, other in arrows():
        if folders in file.parents and folders in other.parents and file.parent != other.parent:
            graph.setdefault(file.parent, set()).add(other.parent)
    assert list(graphlib.TopologicalSorter(graph).static_order())


def imports_of(file, package):
    """The modules of the package that a module imports, at its beginning or in a function."""
    own = ".".join(("attune", *file.relative_to(package).with_suffix("").parts))
    inside = (
        own.removesuffix(".__init__").split(".")
        if own.endswith("__init__")
        else own.split(".")[:-1]
    )
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from ([name] if node.module else [])
            yield from (f"{name}.{one.name}" for one in node.names)


def test_modules_of_the_package_import_one_another_in_no_circle():
    package = ROOT / "runtime" / "python" / "attune"
    modules = {
        ".".join(("attune", *file.relative_to(package).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): file
        for file in package.rglob("*.py")
    }
    graph = {
        name: {one for one in imports_of(file, package) if one in modules and one != name}
        for name, file in modules.items()
    }
    assert list(graphlib.TopologicalSorter(graph).static_order())
