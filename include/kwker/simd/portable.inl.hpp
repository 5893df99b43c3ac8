// The 16-lane vector in plain C++. Included inside the namespace of its instruction-set level, as every .inl.hpp file.
// The two other files of this folder define the same names; tests hold all three to the same bits.

struct F32 {
  float lane[16];
};
struct I32 {
  std::int32_t lane[16];
};

/// The widest vector of the machine, for kernels whose lanes are outputs and may be taken in any number at once.
using Native = F32;
constexpr int kNative = 16;
/// Rows and queries that the kernels handle at once.
constexpr int kInt4Rows = 4, kBf16Rows = 4, kQueriesAtOnce = 4;

#define KWKER_EACH_LANE for (int i = 0; i < 16; ++i)

inline F32 set1(float x) {
  F32 r;
  KWKER_EACH_LANE r.lane[i] = x;
  return r;
}
inline F32 load(const float* p) {
  F32 r;
  KWKER_EACH_LANE r.lane[i] = p[i];
  return r;
}
inline void store(float* p, F32 x) { KWKER_EACH_LANE p[i] = x.lane[i]; }
inline F32 add(F32 a, F32 b) {
  KWKER_EACH_LANE a.lane[i] += b.lane[i];
  return a;
}
inline F32 sub(F32 a, F32 b) {
  KWKER_EACH_LANE a.lane[i] -= b.lane[i];
  return a;
}
inline F32 mul(F32 a, F32 b) {
  KWKER_EACH_LANE a.lane[i] *= b.lane[i];
  return a;
}
inline F32 div(F32 a, F32 b) {
  KWKER_EACH_LANE a.lane[i] /= b.lane[i];
  return a;
}
/// a * b + c, rounded once.
inline F32 fma(F32 a, F32 b, F32 c) {
  KWKER_EACH_LANE c.lane[i] = std::fma(a.lane[i], b.lane[i], c.lane[i]);
  return c;
}
/// b where either is NaN, as the x86 instruction.
inline F32 max(F32 a, F32 b) {
  KWKER_EACH_LANE a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
inline F32 min(F32 a, F32 b) {
  KWKER_EACH_LANE a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
inline F32 abs(F32 a) {
  KWKER_EACH_LANE a.lane[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(a.lane[i]) & 0x7fffffffu);
  return a;
}
/// x in lanes below n, fill in the others.
inline F32 keep_first(F32 x, int n, F32 fill) {
  KWKER_EACH_LANE x.lane[i] = i < n ? x.lane[i] : fill.lane[i];
  return x;
}
/// Lanes i and i + 8, then i + 4, i + 2, i + 1.
inline float reduce_add(F32 x) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.lane[i] += x.lane[i + width];
  }
  return x.lane[0];
}
inline float reduce_max(F32 x) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.lane[i] = x.lane[i] > x.lane[i + width] ? x.lane[i] : x.lane[i + width];
  }
  return x.lane[0];
}
/// Nearest integer, ties to even, for magnitudes below 2^22; INT_MIN for NaN.
inline I32 to_int(F32 x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it leaves no room for a fraction
  I32 r;
  KWKER_EACH_LANE r.lane[i] = x.lane[i] != x.lane[i] ? std::numeric_limits<std::int32_t>::min()
                                                     : static_cast<std::int32_t>((x.lane[i] + kShift) - kShift);
  return r;
}
inline F32 to_float(I32 x) {
  F32 r;
  KWKER_EACH_LANE r.lane[i] = static_cast<float>(x.lane[i]);
  return r;
}
/// 2^n for n in [-126, 127].
inline F32 power_of_two(I32 n) {
  F32 r;
  KWKER_EACH_LANE r.lane[i] = std::bit_cast<float>(static_cast<std::uint32_t>(n.lane[i] + 127) << 23);
  return r;
}
/// The nearest bfloat16, ties to even, as a float.
inline F32 round_bf16(F32 x) {
  KWKER_EACH_LANE {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x.lane[i]);
    x.lane[i] = std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
  }
  return x;
}
/// Stores lanes that are rounded to bfloat16 already.
inline void store_bf16(bfloat16* p, F32 x) {
  KWKER_EACH_LANE p[i].bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x.lane[i]) >> 16);
}
/// Saturates 16 lanes to signed bytes.
inline void store_int8(std::int8_t* p, I32 x) {
  KWKER_EACH_LANE {
    const std::int32_t v = x.lane[i];
    p[i] = static_cast<std::int8_t>(v < -128 ? -128 : v > 127 ? 127 : v);
  }
}

inline Native native_set1(float x) { return set1(x); }
inline Native native_load(const float* p) { return load(p); }
inline void native_store(float* p, Native x) { store(p, x); }
inline F32 load_half(const std::uint16_t* p) {  // 16 IEEE halves
  F32 r;
  KWKER_EACH_LANE r.lane[i] = kwker::to_float(float16{p[i]});
  return r;
}
/// Splits kNative pairs of bfloat16 into the first and the second of each pair.
inline void native_pairs(const bfloat16* p, Native& even, Native& odd) {
  KWKER_EACH_LANE {
    even.lane[i] = kwker::to_float(p[2 * i]);
    odd.lane[i] = kwker::to_float(p[2 * i + 1]);
  }
}

#undef KWKER_EACH_LANE

inline void prefetch(const void*) {}
inline void prefetch_stream(const void*) {}

/// Exact dot products of one int4 block, [rows][16] -> sums; see kernels/int4.inl.hpp for the definition.
template <int kRows, bool kCommon>
inline void int4_block_dot(const std::uint8_t* w, const Int4Block& block, const std::int8_t* x,
                           const std::int16_t* x_sums, I32* sums) {
  for (int m = 0; m < kRows; ++m) sums[m] = I32{};
  for (int k = 0; k < block.inputs; ++k) {
    const std::uint8_t* bytes = w + k / 32 * 256 + k % 32 / 8 * 64 + k % 4;
    const int shift = k % 8 < 4 ? 0 : 4;
    for (int i = 0; i < 16; ++i) {
      const int scaled = ((bytes[4 * i] >> shift) & 15) * int4_sub_scale(w[block.meta(k / block.group, i)]);
      for (int m = 0; m < kRows; ++m) sums[m].lane[i] += scaled * x[m * Int8Rows::kStride + k];
    }
  }
  for (int g = 0; g < block.groups; ++g) {
    for (int i = 0; i < 16; ++i) {
      const std::uint8_t meta = w[block.meta(g, i)];
      const int zero = int4_sub_scale(meta) * int4_zero_point(meta);
      for (int m = 0; m < kRows; ++m) sums[m].lane[i] -= zero * x_sums[m * Int8Rows::kSums + g];
    }
  }
}
