// How a tensor crosses from kwker._torch to kwker._core: a capsule around a view and whatever keeps its memory alive.
#pragma once

#include "kwker/base/tensor.hpp"

namespace kwker::python {

inline constexpr const char* kTensorCapsuleName = "kwker.TensorView";

/// What the capsule points to. The maker of the capsule derives from it to add the owner of the memory.
struct TensorHolder {
  virtual ~TensorHolder() = default;
  TensorView view;
};

}  // namespace kwker::python
