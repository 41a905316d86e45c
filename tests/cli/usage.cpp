// Help, bad usage and bad specs: what a person meets first.
#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/cli/tool.hpp"

using namespace attune::testing;

TEST_CASE("help names every subcommand, each with its own help and examples") {
  const ToolResult help = attune_tool({"--help"});
  CHECK(help.exit_code == 0);
  for (const char* name : {"generate", "compile", "pack", "run", "list", "explain", "bench", "tune", "spec-from",
                           "cache", "completion", "features", "doctor"}) {
    CAPTURE(name);
    CHECK(contains(help.out, name));
    const ToolResult own = attune_tool({name, "--help"});
    CHECK(own.exit_code == 0);
    CHECK(contains(own.out, "--json"));
  }
  CHECK(contains(attune_tool({"--version"}).out, "0.1.0"));
}

TEST_CASE("bad usage is exit 2 and says what is wrong") {
  CHECK(attune_tool({}).exit_code == 2);
  CHECK(contains(attune_tool({}).err, "Subcommands"));
  CHECK(attune_tool({"frobnicate"}).exit_code == 2);
  CHECK(attune_tool({"run"}).exit_code == 2);
  CHECK(attune_tool({"run", "--device", "tpu", source_file("specs/quickstart.yaml")}).exit_code == 2);
  CHECK(attune_tool({"run", "--device", "none", "--bank-conflicts", source_file("specs/quickstart.yaml")}).exit_code ==
        2);
  CHECK(attune_tool({"cache"}).exit_code == 2);
  const ToolResult arch = attune_tool({"compile", source_file("specs/quickstart.yaml"), "--arch", "sm_12"});
  CHECK(arch.exit_code == 2);
  CHECK(contains(arch.err, "unknown architecture 'sm_12'"));
  CHECK(contains(arch.err, "sm_90"));
  for (const char* name : {"90", "9.0", "sm90", "sm_90a"}) {
    CAPTURE(name);
    const ToolResult near = attune_tool({"compile", source_file("specs/quickstart.yaml"), "--arch", name});
    CHECK(near.exit_code == 2);
    CHECK(contains(near.err, "did you mean sm_90?"));
  }
}

TEST_CASE("a number that is none or too small is named with the least that is taken, not with the largest double") {
  const auto says = [](const std::vector<std::string>& arguments, const std::string& problem) {
    const ToolResult result = attune_tool(arguments);
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(contains(result.err, problem), result.err);
  };
  says({"explain", "--decode", "--page-size", "0"}, "--page-size: '0' is no whole number from 1 on");
  says({"explain", "--decode", "--page-size", "16x"}, "--page-size: '16x' is no whole number from 1 on");
  says({"explain", "--total-q", "-1"}, "--total-q: '-1' is no whole number from 0 on");
  for (const std::string command : {"run", "compile", "pack"}) {
    says({command, source_file("specs/quickstart.yaml"), "--jobs", "0"}, "--jobs: '0' is no whole number from 1 on");
  }
}

TEST_CASE("a bad spec is exit 2, all problems with file and line, nothing written") {
  const TemporaryFolder folder;
  const std::string spec = folder.file("bad.yaml", "template: prefill_sm80\nhead_dmi: 64\ndtype: bf61\n");
  const std::string out = (folder.path() / "out").string();
  for (const std::string command : {"generate", "compile", "run"}) {
    CAPTURE(command);
    std::vector<std::string> arguments{command, spec};
    if (command != "run") arguments.insert(arguments.end(), {"--out", out});
    const ToolResult result = attune_tool(arguments);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, spec + ":2:"));
    CHECK(contains(result.err, "head_dim"));
    CHECK(contains(result.err, spec + ":3:"));
    CHECK(contains(result.err, "bf16"));
    CHECK(result.out.empty());
    CHECK_FALSE(std::filesystem::exists(out));
  }
}

TEST_CASE("the problems of all specs are reported together") {
  const TemporaryFolder folder;
  const std::string first = folder.file("first.yaml", "template: prefil_sm80\n");
  const std::string second = (folder.path() / "missing.yaml").string();
  const ToolResult result = attune_tool({"generate", first, second, "--out", (folder.path() / "out").string()});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "prefill_sm80"));
  CHECK(contains(result.err, "missing.yaml"));
}

TEST_CASE("a path that is not UTF-8 is no reason not to print JSON") {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "na\xefve").string();
  const ToolResult result = attune_tool({"generate", source_file("specs/quickstart.yaml"), "--out", out, "--json"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "na\xef\xbf\xbdve"));
}

TEST_CASE("combinations that are refused for one reason are one entry") {
  const TemporaryFolder folder;
  const std::string spec = folder.file("s.yaml",
                                       "template: prefill_sm80\nhead_dim: [64, 128]\nB_r: [80, 128]\n"
                                       "dtype: [fp16, bf16]\n");
  const ToolResult result = attune_tool({"generate", spec, "--out", (folder.path() / "out").string()});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "4 variants, 4 refused"));
  CHECK(contains(result.out, "refused prefill_sm80_fp16_d64_r80_c64_w4_s2 and 3 others:"));
}

TEST_CASE("JSON has no more digits of a number than it is known to") {
  const TemporaryFolder folder;
  const ToolResult result = attune_tool(
      {"generate", source_file("specs/quickstart.yaml"), "--out", (folder.path() / "out").string(), "--json"});
  const std::size_t at = result.out.find("\"estimated_seconds\": ");
  REQUIRE(at != std::string::npos);
  CHECK(result.out.find(',', at) - at <= std::string("\"estimated_seconds\": 0.123456").size());
}

TEST_CASE("a mistyped command, option or word is told what was meant") {
  struct Mistake {
    std::vector<std::string> arguments;
    const char* told;
  };
  for (const Mistake& mistake : {
           Mistake{{"rum", "specs/quickstart.yaml"}, "attune has no command 'rum'; did you mean run?"},
           Mistake{{"frobnicate"}, "attune has no command 'frobnicate'; there are generate, compile"},
           Mistake{{"cache", "lst"}, "cache has no command 'lst'; did you mean list?"},
           Mistake{{"run", "a.yaml", "--devise", "emulator"}, "run has no option '--devise'; did you mean --device?"},
           Mistake{{"run", "a.yaml", "--sed=5"}, "run has no option '--sed'; did you mean --seed?"},
           Mistake{{"generate", "a.yaml", "-o", "b"}, "generate has no option '-o'; did you mean --out?"},
           Mistake{{"cache", "list", "--jsn"}, "list has no option '--jsn'; did you mean --json?"},
           Mistake{{"run", "a.yaml", "--device", "emulater"},
                   "none of auto, gpu, emulator, none; did you mean emulator?"},
           Mistake{{"explain", "--dtype", "bf61"}, "none of fp16, bf16; did you mean bf16?"},
           Mistake{{"bench", "--cases", "prefil"}, "did you mean prefill?"},
       }) {
    const ToolResult result = attune_tool(mistake.arguments);
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(contains(result.err, mistake.told), result.err);
  }
  const ToolResult json = attune_tool({"rum", "--json"});
  CHECK(contains(json.out, "did you mean run?"));
  CHECK(attune_tool({"explain", "--window-left", "-1", "--head-dim", "64"}).exit_code == 0);
}

TEST_CASE("the generator's own tool tells what was meant, too") {
  const auto told = [](const std::vector<std::string>& arguments) {
    const ToolResult result = run_program(ATTUNE_GEN, arguments);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(contains(told({"kernel"}), "attune-gen has no command 'kernel'; did you mean kernels?"));
  CHECK(contains(told({"frobnicate"}), "; there are kernels, texts, schema, keys, golden"));
  CHECK(contains(told({"schema", "--uot", "x"}), "schema has no option '--uot'; did you mean --out?"));
  CHECK(contains(told({"schema"}), "--out is required"));
  CHECK(run_program(ATTUNE_GEN, {"--help"}).exit_code == 0);
}

TEST_CASE("completion is a script of every command and option, which bash takes") {
  const ToolResult result = attune_tool({"completion", "bash"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "\"run --device\") words=\"auto gpu emulator none\""));
  CHECK(contains(result.out, "\"cache \"*) words=\"list verify prune clear "));
  const TemporaryFolder folder;
  const std::string script = folder.file("complete.sh", result.out + R"text(
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _attune; echo "${COMPREPLY[*]}"; }
[[ "$(complete_words attune do)" == doctor ]] || exit 1
[[ "$(complete_words attune run --device em)" == emulator ]] || exit 2
[[ "$(complete_words attune run --bank)" == --bank-conflicts ]] || exit 3
)text");
  CHECK(std::system(("bash " + script).c_str()) == 0);
  CHECK(attune_tool({"completion", "csh"}).exit_code == 2);
}

TEST_CASE("fish completes the same words, with what they are for, and files where there are none") {
  const ToolResult result = attune_tool({"completion", "fish"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "complete -c attune -n __fish_use_subcommand -f -a doctor -d '"));
  CHECK(contains(result.out, "complete -c attune -n '__fish_seen_subcommand_from cache' -f -a prune -d '"));
  CHECK(contains(
      result.out,
      "complete -c attune -n '__fish_seen_subcommand_from run' -l device -x -a 'auto gpu emulator none' -d '"));
  CHECK(contains(result.out, "complete -c attune -n '__fish_seen_subcommand_from run' -l bank-conflicts -d '"));
  const TemporaryFolder folder;
  const std::string script = folder.file("attune.fish", result.out + R"text(
test (complete -C 'attune doct' | cut -f 1) = doctor; or exit 1
test (complete -C 'attune run --device em' | cut -f 1) = emulator; or exit 2
test (complete -C 'attune run --bank' | cut -f 1) = --bank-conflicts; or exit 3
)text");
  if (std::system("command -v fish >/dev/null") == 0) CHECK(std::system(("fish " + script).c_str()) == 0);
}

TEST_CASE("doctor ends with the one next thing to do") {
  const ToolResult on_fake = attune_tool_on_fake_gpu({"doctor"});
  CHECK(on_fake.out.substr(on_fake.out.find("next: ")).find('\n') ==
        on_fake.out.size() - on_fake.out.find("next: ") - 1);
  const ToolResult without_compiler = attune_tool({"doctor"}, {"CXX=/nowhere/c++", "LD_LIBRARY_PATH=/nowhere"});
  if (contains(without_compiler.out, "GPU               missing"))
    CHECK(contains(without_compiler.out, "next: install g++ or clang++"));
}

TEST_CASE("features has a row for every operation that callers have, and says where each is served") {
  const ToolResult result = attune_tool({"features", "--json"});
  CHECK(result.exit_code == 0);
  for (const char* name :
       {"prefill_sm80", "prefill_sm90", "decode_sm80", "store_kv", "merge_states", "rotary_embedding"})
    CHECK(contains(result.out, name));
  CHECK(contains(attune_tool({"features"}).out, "head_dim 1 to 256"));
}

TEST_CASE("doctor tells a cache folder that is unsafe from one that is missing, and names TMPDIR") {
  const TemporaryFolder folder;
  const std::filesystem::path open_to_all = folder.path() / "cache";
  std::filesystem::create_directory(open_to_all);
  std::filesystem::permissions(open_to_all, std::filesystem::perms::all);
  const ToolResult result =
      attune_tool({"doctor"}, {"ATTUNE_CACHE_DIR=" + open_to_all.string(), "TMPDIR=/nonexistent/tmp", "CXX=/bin/true"});
  CHECK(contains(result.out, "cache folder      unusable"));
  CHECK(contains(result.out, "host compiler     unusable"));
  CHECK(contains(result.out, "set TMPDIR to a folder that can be written"));
}

TEST_CASE("a score and a mask that mean different arrays by one name are refused, as a call with them is") {
  const ToolResult result = attune_tool({"explain", "--head-dim", "64", "--score", "s + a[h] where a: fp32[head]",
                                         "--mask", "a[k] == 1 where a: int32[position]"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "params: the score has a: fp32[head], the mask a: int32[position]"));
}
