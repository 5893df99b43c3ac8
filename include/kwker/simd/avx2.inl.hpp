// The 16-lane vector as two 256-bit registers. See portable.inl.hpp for what each function means.

struct F32 {
  __m256 a, b;  // lanes 0 to 7, 8 to 15
};
struct I32 {
  __m256i a, b;
};

struct Native {
  __m256 v;
};
constexpr int kNative = 8;
/// What 16 registers hold: both halves of an accumulator for each row of int4, three accumulators for each row of bf16
/// (acc, even, odd) and each query.
constexpr int kInt4Rows = 4, kBf16Rows = 4, kQueriesAtOnce = 4;

inline F32 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F32 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline F32 add(F32 x, F32 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F32 sub(F32 x, F32 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F32 mul(F32 x, F32 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F32 div(F32 x, F32 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F32 fma(F32 x, F32 y, F32 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F32 max(F32 x, F32 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F32 min(F32 x, F32 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F32 abs(F32 x) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
inline F32 keep_first(F32 x, int n, F32 fill) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 below_a = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lanes));
  const __m256 below_b = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lanes));
  return {_mm256_blendv_ps(fill.a, x.a, below_a), _mm256_blendv_ps(fill.b, x.b, below_b)};
}
inline float reduce_add(F32 x) {
  const __m256 a = _mm256_add_ps(x.a, x.b);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float reduce_max(F32 x) {
  const __m256 a = _mm256_max_ps(x.a, x.b);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
inline I32 to_int(F32 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline F32 to_float(I32 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline F32 power_of_two(I32 n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.a, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.b, bias), 23))};
}
inline __m256 round_bf16_half(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline F32 round_bf16(F32 x) { return {round_bf16_half(x.a), round_bf16_half(x.b)}; }
inline void store_bf16(bfloat16* p, F32 x) {
  const __m256i a = _mm256_srli_epi32(_mm256_castps_si256(x.a), 16),
                b = _mm256_srli_epi32(_mm256_castps_si256(x.b), 16);
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
}
inline void store_int8(std::int8_t* p, I32 x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

inline Native native_set1(float x) { return {_mm256_set1_ps(x)}; }
inline Native native_load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline void native_store(float* p, Native x) { _mm256_storeu_ps(p, x.v); }
inline Native add(Native a, Native b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Native div(Native a, Native b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Native fma(Native a, Native b, Native c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline void native_pairs(const bfloat16* p, Native& even, Native& odd) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  even.v = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  odd.v = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline F32 load_half(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

/// As on AVX-512.
inline void prefetch_stream(const void* p) {
  constexpr int kNear = 1024, kFar = 4096;
  __asm__ volatile("" ::: "memory");
  _mm_prefetch(static_cast<const char*>(p) + kNear, _MM_HINT_T0);
  _mm_prefetch(static_cast<const char*>(p) + kFar, _MM_HINT_T1);
  __asm__ volatile("" ::: "memory");
}

inline __m256i broadcast_dword(const void* p) {
  std::int32_t value;
  std::memcpy(&value, p, sizeof value);
  return _mm256_set1_epi32(value);
}

/// The same two groups of 8 outputs.
struct Int4Meta {
  __m256i scales;  // lanes are outputs; the halves of a lane are the two groups
  __m256i zeros;

  explicit Int4Meta(const std::uint8_t* meta) {
    const __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(meta)));
    scales = _mm256_add_epi16(_mm256_and_si256(words, _mm256_set1_epi16(15)), _mm256_set1_epi16(1));
    zeros = _mm256_srli_epi16(words, 4);
  }
  /// What a zero-point subtracts per unit of activation: sub-scale times zero-point.
  __m256i products() const { return _mm256_mullo_epi16(scales, zeros); }
  /// The sub-scale of one of the two groups in both halves of each lane.
  __m256i scale_pairs(int which) const {
    const __m256i one =
        which == 0 ? _mm256_and_si256(scales, _mm256_set1_epi32(0xffff)) : _mm256_srli_epi32(scales, 16);
    return _mm256_or_si256(one, _mm256_slli_epi32(one, 16));
  }
};

/// Ends an expression: GCC would turn a chain of integer sums into a tree, whose terms do not fit into the registers.
inline void keep_in_register(__m256i& x) { __asm__("" : "+x"(x)); }

/// Scaled bytes would saturate in maddubs (240 * 127 * 2), plain nibbles do not: a pair is at most 3,810 and the eight
/// pairs that meet in a 16-bit lane over 32 inputs 30,480. The sub-scale comes afterwards.
template <int kRows, bool kCommon>
inline void int4_block_dot(const std::uint8_t* w, const Int4Block& shape, const std::int8_t* x,
                           const std::int16_t* x_sums, I32* sums) {
  const Int4Block block = kCommon ? kCommonInt4Block : shape;
  const __m256i low = _mm256_set1_epi8(15);
  for (int m = 0; m < kRows; ++m) sums[m].a = sums[m].b = _mm256_setzero_si256();
  int k = 0;
  for (int g = 0; g < block.groups; ++g) {
    const std::uint8_t* meta = w + block.meta_offset + g / 2 * 32;
    const Int4Meta meta_a(meta), meta_b(meta + 16);
    if (g % 2 == 0) {
      const __m256i products_a = meta_a.products(), products_b = meta_b.products();
      for (int m = 0; m < kRows; ++m) {
        const __m256i group_sums = broadcast_dword(x_sums + m * Int8Rows::kSums + g);
        sums[m].a = _mm256_sub_epi32(sums[m].a, _mm256_madd_epi16(products_a, group_sums));
        sums[m].b = _mm256_sub_epi32(sums[m].b, _mm256_madd_epi16(products_b, group_sums));
      }
    }
    const __m256i scale_a = meta_a.scale_pairs(g % 2), scale_b = meta_b.scale_pairs(g % 2);
    for (const int end = std::min(k + block.group, block.inputs); k < end; k += 32) {
      const std::uint8_t* nibbles = w + k * 8;
      __m256i pairs_a[kRows], pairs_b[kRows];
      for (int m = 0; m < kRows; ++m) pairs_a[m] = pairs_b[m] = _mm256_setzero_si256();
      for (int j = 0; j < 4; ++j) {
        prefetch_stream(nibbles + 64 * j);
        const __m256i bytes_a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(nibbles + 64 * j));
        const __m256i bytes_b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(nibbles + 64 * j + 32));
        const __m256i first_a = _mm256_and_si256(bytes_a, low), first_b = _mm256_and_si256(bytes_b, low);
        const __m256i second_a = _mm256_and_si256(_mm256_srli_epi16(bytes_a, 4), low);
        const __m256i second_b = _mm256_and_si256(_mm256_srli_epi16(bytes_b, 4), low);
        for (int m = 0; m < kRows; ++m) {
          const std::int8_t* values = x + m * Int8Rows::kStride + k + 8 * j;
          const __m256i first = broadcast_dword(values), second = broadcast_dword(values + 4);
          pairs_a[m] = _mm256_add_epi16(pairs_a[m], _mm256_maddubs_epi16(first_a, first));
          pairs_b[m] = _mm256_add_epi16(pairs_b[m], _mm256_maddubs_epi16(first_b, first));
          pairs_a[m] = _mm256_add_epi16(pairs_a[m], _mm256_maddubs_epi16(second_a, second));
          pairs_b[m] = _mm256_add_epi16(pairs_b[m], _mm256_maddubs_epi16(second_b, second));
          keep_in_register(pairs_a[m]);
          keep_in_register(pairs_b[m]);
        }
      }
      for (int m = 0; m < kRows; ++m) {
        sums[m].a = _mm256_add_epi32(sums[m].a, _mm256_madd_epi16(pairs_a[m], scale_a));
        sums[m].b = _mm256_add_epi32(sums[m].b, _mm256_madd_epi16(pairs_b[m], scale_b));
      }
    }
  }
}
