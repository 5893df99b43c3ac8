// The yardstick of decoding speed: how fast this machine reads memory, now.
#pragma once

namespace kwker {

/// GB/s (10^9 bytes) that num_threads() threads together read from a buffer of `megabytes` (10^6 bytes): the best of
/// several passes. Throws std::invalid_argument unless megabytes is at least 1.
double read_bandwidth(int megabytes = 512);

}  // namespace kwker
