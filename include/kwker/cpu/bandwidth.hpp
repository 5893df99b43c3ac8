// The yardstick of decoding speed: how fast this machine reads memory, now.
#pragma once

#include <cstdint>

#include "kwker/base/aligned_buffer.hpp"

namespace kwker {

/// A buffer to read again and again, between other measurements: what a machine gives changes within seconds.
class ReadProbe {
 public:
  /// Throws std::invalid_argument unless megabytes (10^6 bytes) is at least 1.
  explicit ReadProbe(int megabytes);
  /// GB/s (10^9 bytes) of one pass by num_threads() threads.
  double run();

 private:
  AlignedBuffer<std::uint64_t> buffer_;
};

/// GB/s that num_threads() threads together read from a buffer of `megabytes`: the best of several passes. Throws as
/// ReadProbe does.
double read_bandwidth(int megabytes = 512);

}  // namespace kwker
