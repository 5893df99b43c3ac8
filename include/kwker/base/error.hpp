// The two kinds of error that callers see, and a helper that builds their messages.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace kwker {

/// A fault of files or of the machine (a missing tensor, a truncated file, an unsupported CPU).
/// Wrong arguments are `std::invalid_argument` instead.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Joins its arguments, as `operator<<` prints them, into one string.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace kwker
