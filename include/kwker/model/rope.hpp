// Rotary position embedding: the angles of every position, made once per decoder.
#pragma once

#include <cstdint>

#include "kwker/base/aligned_buffer.hpp"
#include "kwker/model/config.hpp"

namespace kwker {

/// Tables of [positions, half] cosines and sines, where `half` is head_dim / 2 rounded up to 16; the padding is 0.
/// Frequencies as in Hugging Face's modeling_rope_utils, in fp32; sines by our own polynomials, since those of the C
/// library differ from machine to machine.
class RopeTable {
 public:
  RopeTable(const ModelConfig& config, std::int64_t positions);

  std::int64_t half() const { return half_; }
  const float* cos(std::int64_t position) const { return cos_.data() + position * half_; }
  const float* sin(std::int64_t position) const { return sin_.data() + position * half_; }

 private:
  std::int64_t half_;
  AlignedBuffer<float> cos_;
  AlignedBuffer<float> sin_;
};

}  // namespace kwker
