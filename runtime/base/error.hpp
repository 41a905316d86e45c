// The one exception type of the library; the C ABI turns it into a status and a message.
#pragma once

#include <stdexcept>
#include <string>

#include "attune/attune.h"

namespace attune {

class Error : public std::runtime_error {
 public:
  Error(attune_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  [[nodiscard]] attune_status status() const { return status_; }

 private:
  attune_status status_;
};

}  // namespace attune
