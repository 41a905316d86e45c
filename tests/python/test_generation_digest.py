"""By generation_digest() kernels on the disk are found again: it changes with every file that it is made of."""

import re
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "runtime" / "cmake" / "Digest.cmake"


def digest(folder, files):
    out = folder / "digest.cpp"
    names = ";".join(str(file) for file in files)
    subprocess.run(["cmake", f"-DFILES={names}", f"-DOUT={out}", "-P", SCRIPT], check=True)
    return re.search(r'return "([0-9a-f]{64})"', out.read_text()).group(1)


def test_the_digest_changes_with_a_byte_a_name_and_a_file(tmp_path):
    files = [tmp_path / "emit.cpp", tmp_path / "a template.cu"]
    for file in files:
        file.write_text("one")
    first = digest(tmp_path, files)
    assert digest(tmp_path, files) == first
    files[1].write_text("onf")
    assert digest(tmp_path, files) != first
    files[1].write_text("one")
    assert digest(tmp_path, files[:1]) != first
    assert digest(tmp_path, [files[0], files[1].rename(tmp_path / "other.cu")]) != first
