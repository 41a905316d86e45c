"""clang-tidy over the C++ sources that standard input names, on all cores. What was found clean is not checked again as
long as nothing of it changes: not the file, nor what it includes of the project, nor its flags, nor the checks.

Neighbours are read as one source, as their headers take three quarters of the time. Where one of them has a fault, or two
have names of their own that are the same, they are read again in halves.

usage: tidy.py BUILD_TREE CONFIGURATION < files
"""

import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import clang_tidy

MOST_TOGETHER = 12

tree, configuration = map(pathlib.Path, sys.argv[1:])
root = configuration.parent
tool = pathlib.Path(clang_tidy.__file__).parent / "data/bin/clang-tidy"
commands = {
    entry["file"]: entry["command"] for entry in json.loads((tree / "compile_commands.json").read_text())
}
included = re.compile(rb'^#include "([^"]+)"', re.MULTILINE)


def sources_of(file):
    """The file and, of the project, all that it includes: project headers are named from the root."""
    seen, waiting = {}, [file]
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen[path] = path.read_bytes()
        for name in included.findall(seen[path]):
            waiting += [root / name.decode(), root / "runtime/include" / name.decode()]
    return seen


def mark_of(file):
    """Where it is noted that the file is clean."""
    key = hashlib.sha256(configuration.read_bytes())
    key.update(commands.get(str(file), "").encode() + str(tool.stat().st_size).encode())
    for path, text in sorted(sources_of(file).items()):
        key.update(str(path).encode() + b"\0" + text)
    return tree / "clean" / key.hexdigest()


def flags_of(file):
    """The compiler's arguments before those that name the file and what becomes of it."""
    words = shlex.split(commands[str(file)])
    return words[1 : words.index("-o")]


def check(files):
    """Whether files of the same flags are clean, and what was said of those that are not, with their number."""
    if len(files) == 1:
        source = files[0]
    else:
        name = hashlib.sha256("".join(map(str, files)).encode()).hexdigest()[:16]
        source = tree / "together" / f"{name}.cpp"
        source.parent.mkdir(exist_ok=True)
        # Not included: the analyzer leaves out functions that are not in the file itself.
        source.write_text("".join(file.read_text() for file in files))
    command = [tool, "--quiet", "--warnings-as-errors=*", source, "--", *flags_of(files[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        for file in files:
            mark_of(file).touch()
        return 0, ""
    if len(files) > 1:
        halves = [check(files[i::2]) for i in range(2)]
        return sum(faults for faults, _ in halves), "".join(text for _, text in halves)
    return 1, done.stdout + "".join(
        line for line in done.stderr.splitlines(keepends=True) if " generated." not in line
    )


def batches(files):
    """Neighbours of the same flags, so many at once that their headers no longer matter, and all cores have some."""
    for _, alike in itertools.groupby(files, key=lambda file: (file.parent, flags_of(file))):
        neighbours = list(alike)
        count = -(-len(neighbours) // MOST_TOGETHER)
        yield from (neighbours[i::count] for i in range(count))


(tree / "clean").mkdir(exist_ok=True)
files = [pathlib.Path(line) for line in sys.stdin.read().split()]
faults = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for number, text in pool.map(check, batches([file for file in files if not mark_of(file).exists()])):
        faults += number
        print(text, end="", flush=True)
print(f"{len(files)} files, {faults} with faults")
sys.exit(faults > 0)
