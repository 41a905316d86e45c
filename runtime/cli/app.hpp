// CLI11's App by name, for headers that pass one on: CLI11 itself takes seconds to read.
#pragma once

namespace CLI {
class App;
}
