"""README and guides: links lead somewhere, snippets are what they say, commands exist, figures are measured.

`./dev pages` runs this file as a script, which brings the README's tables up to date.
"""

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import attune
from attune.bench.kept import headlines, kept_markdown
from attune.bench.report import Report, Result

ROOT = Path(__file__).parents[2]
TOOL = Path(attune.__file__).parents[2] / "bin" / "attune"
KEPT = ROOT / "tests" / "bench"
ROOMS = ("guides", "examples", "generated", "runtime", "specs", "templates", "tests")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for room in ROOMS for page in (ROOT / room).rglob("*.md"))]
)
#: Pages whose subject is what was measured or tried: kept runs, and the notes of each template.
NOTES = set((ROOT / "templates").glob("*.md")) - {ROOT / "templates" / "README.md"}
FIGURES = {KEPT / "README.md", KEPT / "notes.md"} | NOTES

BLOCK = re.compile(
    r"^```(?P<language>\w*)(?: (?P<source>[^\n]+))?\n(?P<text>.*?)^```$", re.M | re.S
)
SPEED = re.compile(
    r"\d[\d,.]* ?(?:TFLOP/s|GB/s|µs|ms\b|times as (?:fast|long))|\d[\d.]* ?% (?:faster|slower)"
)

needs_tool = pytest.mark.skipif(not TOOL.exists(), reason=f"there is no {TOOL}")


def named(page):
    return str(page.relative_to(ROOT))


def blocks(*languages):
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if block["language"] in languages:
                yield pytest.param(
                    block["source"], block["text"], id=f"{named(page)}:{block.start()}"
                )


def stripped(text):
    """Lines without what indents or ends them, and without empty ones."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def tool(*arguments):
    done = subprocess.run([TOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def anchors(page):
    """Those that GitHub gives a page's headings."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", page.read_text(encoding="utf-8"))
        targets = ((page.parent / link).resolve() for link in links if "://" not in link)
        waiting += [target for target in targets if target.is_file()]
    assert {named(page) for page in set(PAGES) - reached} == set()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


@pytest.mark.parametrize(
    ("source", "text"),
    [
        block
        for block in blocks("c", "cpp", "cmake", "cuda", "python", "sh", "yaml")
        if block.values[0] is not None
    ],
)
def test_a_block_that_names_a_file_is_taken_from_it(source, text):
    whole = stripped((ROOT / source).read_text(encoding="utf-8"))
    place = 0
    for part in re.split(r"^\s*…\s*$", text, flags=re.M):
        found = whole.find(stripped(part), place)
        assert found >= 0, f"not in {source}, or not in this order:\n{part}"
        place = found + len(stripped(part))


def walks():
    """Of the guide through generated kernels: what a table's first column names, and the file that it is of."""
    page = (ROOT / "guides" / "read-a-generated-kernel.md").read_text(encoding="utf-8")
    for part in re.split(r"^(?=\[`generated/)", page, flags=re.M)[1:]:
        file = re.search(r"\]\(\.\./(generated/[^)]+\.cu)\)", part)[1]
        for row in re.findall(r"^\| (.*) \| .* \|$", part.partition("| in the kernel |")[2], re.M):
            for code in re.findall(r"`([^`]+)`", row):
                yield pytest.param(file, code, id=code)


@pytest.mark.parametrize(("file", "code"), list(walks()))
def test_a_walk_through_a_kernel_names_what_is_there(file, code):
    kernel = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(".*".join(map(re.escape, code.split("…"))), kernel), f"not in {file}"


@pytest.mark.parametrize(("source", "text"), list(blocks("python")))
def test_python_runs(source, text):
    if "import torch" in text or "import jax" in text:
        pytest.skip("it needs more than NumPy; an example runs it")
    exec(compile(text, source or "page", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("source", "text"), list(blocks("c", "cpp", "cmake")))
def test_code_of_other_languages_names_the_file_that_is_built(source, text):
    assert source is not None, text


@needs_tool
@pytest.mark.parametrize(("source", "text"), list(blocks("yaml")))
def test_specs_are_accepted(tmp_path, source, text):
    spec = tmp_path / "spec.yaml"
    spec.write_text(text, encoding="utf-8")
    tool("generate", spec, "--out", tmp_path / "out")


@cache
def options_of(command):
    """The options of a command of the tool, and what follows it where that is a command again."""
    text = tool(*command, "--help")
    return set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", text)), set(
        re.findall(r"^  ([a-z][a-z-]+) {2,}", text, re.M)
    )


def commands():
    """Calls of the tool in blocks of a shell, and between backticks where these begin with one."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [
            line
            for block in BLOCK.finditer(text)
            if block["language"] == "sh"
            for line in block["text"].splitlines()
        ]
        lines += re.findall(r"`(attune [^`]+)`", BLOCK.sub("", text))
        for line in lines:
            call = re.search(r"(?:^|\s)(?:attune|\"\$attune\") ([a-z].*)", line)
            if call:
                yield pytest.param(call[1], id=f"{named(page)}: {call[1][:40]}")


@needs_tool
@pytest.mark.parametrize("line", list(commands()))
def test_commands_and_their_options_exist(line):
    words = shlex.split(line.replace("…", ""))
    command = [words[0]]
    options, nested = options_of(tuple(command))
    assert words[0] in options_of(())[1], words[0]
    if len(words) > 1 and words[1] in nested:
        options, _ = options_of((words[0], words[1]))
    for word in words[1:]:
        if word.startswith("-"):
            assert word.strip("[]").split("=")[0] in options, word


def masked(text):
    """Without numbers and the spaces that align them."""
    return re.sub(r" +", " ", re.sub(r"\d[\d.]*", "0", text)).strip()


@needs_tool
def test_the_readme_shows_what_the_first_command_prints(tmp_path):
    (shown,) = (
        block["text"]
        for block in BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8"))
        if block["source"] == "attune run specs/quickstart.yaml"
    )
    printed = tool("run", ROOT / "specs" / "quickstart.yaml", "--device", "emulator")
    units = re.compile(r" (?:ms|us|s)\b")
    if "NVRTC" not in printed:
        pytest.skip("there is no NVRTC")
    assert units.sub("", masked(printed)) == units.sub("", masked(shown))


@needs_tool
def test_the_readme_says_what_is_served():
    table = tool("features", "--markdown")
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")
    rows = json.loads(tool("features", "--json"))["features"]
    assert len(rows) == len(table.splitlines()) - 2


@needs_tool
def test_a_row_of_what_is_served_is_what_explain_says():
    rows = {row["feature"]: row for row in json.loads(tool("features", "--json"))["features"]}
    other = rows["prefill, V with a head_dim of its own"]
    assert (other["sm_80"], other["sm_90"]) == ("", "prefill_sm90")
    for arch, served in (("sm_80", False), ("sm_90", True)):
        command = [TOOL, "explain", "--head-dim", "192", "--head-dim-v", "128", "--arch", arch]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        assert json.loads(done.stdout)["served"] == served


def test_the_page_of_kept_runs_is_current():
    assert (KEPT / "README.md").read_text(encoding="utf-8") == kept_markdown(KEPT)


def test_the_readme_has_the_figures_of_the_newest_kept_runs():
    assert headlines(KEPT) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_of_a_case_that_was_measured_again_the_newest_report_speaks(tmp_path):
    def report(gpu, date, **speedups):
        machine = {"gpu": gpu, "cuda": "13.0", "cudnn": "9.19.0", "date": f"{date} 10:00 UTC"}
        timed = {
            f"d{case[1:]} b1 h1 L64 full": {
                "attune": Result("timed", ms=1.0),
                "cudnn": Result("timed", ms=ratio),
            }
            for case, ratio in speedups.items()
        }
        Report(machine, None, {"backward": timed}).write(tmp_path / f"{gpu[-4:]}_{date}.json")

    report("NVIDIA H200", "2026-11-01", d64=1.5, d128=0.5)
    report("NVIDIA H200", "2026-11-02", d128=2.0)
    report("NVIDIA H100", "2026-11-01", d64=0.1, d256=0.1)
    line = headlines(tmp_path).splitlines()[-1]
    assert "2 cases | 1.73 times as fast | 1.50 | NVIDIA H200, CUDA 13.0, 2026-11-02" in line


@pytest.mark.parametrize("page", sorted(set(PAGES) - FIGURES), ids=named)
def test_no_speed_is_written_by_hand(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8")).replace(headlines(KEPT), "")
    assert SPEED.findall(text) == []


def test_kept_writes_the_page_of_a_folder(tmp_path):
    for report in KEPT.glob("*.json"):
        (tmp_path / report.name).write_bytes(report.read_bytes())
    command = [sys.executable, "-m", "attune.bench", "--kept", tmp_path]
    subprocess.run(command, check=True)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == kept_markdown(KEPT)
    (tmp_path / "bad.json").write_text("{}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "bad.json is no report" in done.stderr) == (2, True)


def write_readme():
    """Puts today's table of what is served and today's figures in the place of those that the README has."""
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    for table in (tool("features", "--markdown"), headlines(KEPT)):
        title = re.escape(table.splitlines()[0])
        text = re.sub(rf"^{title}\n(?:\|.*\n)*", lambda _, table=table: table, text, flags=re.M)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_readme()
