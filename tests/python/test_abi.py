"""The C ABI: symbols, sizes, offsets and values are those that tests/golden/abi.txt has.

`python tests/python/test_abi.py > tests/golden/abi.txt` writes what the header says now. Between minor versions lines may
be added, and a struct may grow; nothing else may change.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "runtime" / "include" / "attune" / "attune.h"
COMMITTED = ROOT / "tests" / "golden" / "abi.txt"


def declared():
    """What attune.h declares: functions; structs and their members; constants."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.S)
    functions = re.findall(r"ATTUNE_API [^;{]*?\b(attune_\w+)\(", text)
    structs = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.S):
        lines = (line.strip() for line in body.split(";"))
        structs[name] = [
            re.sub(r"\[.*\]", "", member.split()[-1].lstrip("*"))
            for line in lines
            if line
            for member in line.split(",")
        ]
    constants = [
        constant
        for body in re.findall(r"typedef enum \w+ \{(.*?)\} \w+;", text, re.S)
        for constant in re.findall(r"\b(ATTUNE_\w+) =", body)
    ]
    return functions, structs, constants


def abi_text(compiler):
    """One line for each symbol, constant, struct and member, as this compiler lays them out."""
    functions, structs, constants = declared()
    lines = [f'puts("symbol {name}");' for name in sorted(functions)]
    lines += [f'printf("constant {name} = %d\\n", (int){name});' for name in constants]
    for name, members in structs.items():
        lines.append(f'printf("struct {name}: %zu bytes\\n", sizeof({name}));')
        lines += [
            f'printf("  {member} at %zu, %zu bytes\\n", '
            f"offsetof({name}, {member}), sizeof((({name}*)0)->{member}));"
            for member in members
        ]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "abi.c"), Path(folder, "abi")
        body = "\n".join(lines)
        source.write_text(f"#include <attune/attune.h>\n#include <stdio.h>\nint main(void) {{{body}}}")
        include = f"-I{HEADER.parents[1]}"
        subprocess.run([compiler, "-std=c99", include, source, "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def test_the_c_abi_is_as_committed():
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    assert abi_text(compiler) == COMMITTED.read_text(encoding="utf-8")


def test_every_struct_that_callers_fill_begins_with_its_size():
    _, structs, _ = declared()
    assert len(structs) > 8
    for name, members in structs.items():
        if name not in ("attune_tensor", "attune_dropout", "attune_named_array", "attune_prepare_item"):
            assert members[0] == "struct_size", name


def test_the_versions_of_header_project_and_package_are_one():
    text = HEADER.read_text(encoding="utf-8")
    parts = [re.search(rf"ATTUNE_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH")]
    version = ".".join(parts)
    assert f"project(attune VERSION {version} " in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    assert f"\n## {version}" in (ROOT / "RELEASES.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    print(abi_text("cc"), end="")
