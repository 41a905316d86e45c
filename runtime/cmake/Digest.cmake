# Writes OUT, the source file of attune::generation_digest(), from the contents of FILES.
set(digests)
foreach(file IN LISTS FILES)
  file(SHA256 ${file} digest)
  cmake_path(GET file FILENAME name)
  string(APPEND digests "${name} ${digest}\n")
endforeach()
string(SHA256 digest "${digests}")
file(WRITE ${OUT}
  "#include \"runtime/bundle/embedded.hpp\"\n\n"
  "std::string_view attune::generation_digest() { return \"${digest}\"; }\n")
