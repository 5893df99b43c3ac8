// Kernels over single rows: norm, activation, rotation, and the conversions before a matmul.

/// e^x with relative error below 2e-7, x clamped to [-87, 88] (Cephes expf: Cody-Waite reduction, degree 6).
inline F32 exp(F32 x) {
  x = min(max(x, set1(-87.0f)), set1(88.0f));
  const I32 n = to_int(mul(x, set1(1.44269504088896341f)));
  F32 r = fma(to_float(n), set1(-0.693359375f), x);
  r = fma(to_float(n), set1(2.12194440e-4f), r);
  F32 p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), set1(1.0f));
  return mul(p, power_of_two(n));
}

inline void rms_norm(const float* x, const float* weight, float eps, std::int64_t n, std::int64_t padded, float* y) {
  F32 squares = set1(0.0f);
  for (std::int64_t i = 0; i < padded; i += 16) squares = fma(load(x + i), load(x + i), squares);
  const float mean = reduce_add(squares) / static_cast<float>(n);
  const F32 factor = set1(1.0f / std::sqrt(mean + eps));
  for (std::int64_t i = 0; i < padded; i += 16) store(y + i, mul(mul(load(x + i), factor), load(weight + i)));
}

inline void swiglu(const float* gate_up, std::int64_t runs, float* out) {
  for (std::int64_t i = 0; i < runs; ++i) {
    const F32 gate = load(gate_up + 32 * i);
    const F32 up = load(gate_up + 32 * i + 16);
    const F32 denominator = add(set1(1.0f), exp(sub(set1(0.0f), gate)));
    store(out + 16 * i, mul(div(gate, denominator), up));
  }
}

inline void rotate(float* head, const float* cos, const float* sin, std::int64_t half) {
  for (std::int64_t i = 0; i < half; i += 16) {
    const F32 first = load(head + i), second = load(head + half + i);
    const F32 c = load(cos + i), s = load(sin + i);
    store(head + i, round_bf16(fma(first, c, sub(set1(0.0f), mul(second, s)))));
    store(head + half + i, round_bf16(fma(second, c, mul(first, s))));
  }
}

inline void round_bf16_row(const float* x, std::int64_t n, const Bf16Rows& out, std::int64_t row) {
  for (std::int64_t b = 0; b * Bf16Layout::kBlock < n; ++b, x += Bf16Layout::kBlock) {
    float* values = out.values_at(b, row);
    bfloat16* halves = out.halves_at(b, row);
    for (int i = 0; i < Bf16Layout::kBlock; i += 16) {
      const F32 rounded = round_bf16(load(x + i));
      store(values + i, rounded);
      store_bf16(halves + i, rounded);
    }
  }
}

inline void quantize_int8(const float* x, const Int4Layout& layout, const Int8Rows& out, std::int64_t row) {
  // Below this the reciprocal would overflow; such a block cannot matter beside any other.
  constexpr float kTiny = 1e-30f;
  for (int b = 0; b < layout.blocks(); ++b) {
    const Int4Block block = layout.block_at(b);
    const float* from = x + std::int64_t{b} * layout.block();
    std::int8_t* to = out.values_at(b, row);
    std::int16_t* sums = out.sums_at(b, row);
    F32 largest = set1(0.0f);
    for (int i = 0; i < block.inputs; i += 16) largest = max(abs(load(from + i)), largest);
    const float amax = reduce_max(largest);
    const bool zero = amax < kTiny;
    *out.scales_at(b, row) = zero ? 0.0f : amax / 127.0f;
    const F32 inverse = set1(zero ? 0.0f : 127.0f / amax);
    for (int i = 0; i < block.inputs; i += 16) store_int8(to + i, to_int(mul(load(from + i), inverse)));
    for (int g = 0; g < Int8Rows::kSums; ++g) {
      const int first = g * block.group;
      const int last = std::min(first + block.group, block.inputs);
      int sum = 0;
      for (int i = first; i < last; ++i) sum += to[i];
      sums[g] = static_cast<std::int16_t>(sum);
    }
  }
}

inline std::int64_t argmax(const float* x, std::int64_t n) {
  constexpr std::int64_t kBlock = 1024;  // only the block that holds the largest is searched for its place
  const float lowest = -std::numeric_limits<float>::infinity();
  float best = lowest;
  std::int64_t best_block = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, n);
    F32 largest = set1(lowest);
    std::int64_t i = begin;
    for (; i + 16 <= end; i += 16) largest = max(load(x + i), largest);
    float value = reduce_max(largest);
    for (; i < end; ++i) value = x[i] > value ? x[i] : value;
    if (value > best) {
      best = value;
      best_block = begin;
    }
  }
  for (std::int64_t i = best_block; i < n; ++i) {
    if (x[i] == best) return i;
  }
  return 0;  // nothing but NaN
}
