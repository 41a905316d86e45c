"""clang-tidy over the C++ sources that standard input names, on all cores. What was found clean is not checked again as
long as nothing of it changes: not the file, nor what it includes of the project, nor its flags, nor the checks.

usage: tidy.py BUILD_TREE CONFIGURATION < files
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import clang_tidy

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


def key_of(file):
    key = hashlib.sha256(configuration.read_bytes())
    key.update(commands.get(str(file), "").encode() + str(tool.stat().st_size).encode())
    for path, text in sorted(sources_of(file).items()):
        key.update(str(path).encode() + b"\0" + text)
    return key.hexdigest()


def check(file):
    clean = tree / "clean" / key_of(file)
    if clean.exists():
        return True, ""
    command = [tool, "-p", tree, "--quiet", "--warnings-as-errors=*", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        clean.parent.mkdir(exist_ok=True)
        clean.touch()
        return True, ""
    return False, done.stdout + "".join(
        line for line in done.stderr.splitlines(keepends=True) if " generated." not in line
    )


files = [pathlib.Path(line) for line in sys.stdin.read().split()]
faults = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for ok, text in pool.map(check, files):
        faults += not ok
        print(text, end="", flush=True)
print(f"{len(files)} files, {faults} with faults")
sys.exit(faults > 0)
