// The 16-lane vector as one 512-bit register. See portable.inl.hpp for what each function means.

struct F32 {
  __m512 v;
};
struct I32 {
  __m512i v;
};

using Native = F32;
constexpr int kNative = 16;
/// What 32 registers hold: an accumulator for each row of int4, two for bf16 (sums over blocks may wait in memory),
/// three for each query.
constexpr int kInt4Rows = 16, kBf16Rows = 12, kQueriesAtOnce = 8;

inline F32 set1(float x) { return {_mm512_set1_ps(x)}; }
inline F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, F32 x) { _mm512_storeu_ps(p, x.v); }
inline F32 add(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32 sub(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32 mul(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32 div(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F32 abs(F32 a) { return {_mm512_abs_ps(a.v)}; }
inline F32 keep_first(F32 x, int n, F32 fill) {
  return {_mm512_mask_mov_ps(fill.v, static_cast<__mmask16>((1u << n) - 1), x.v)};
}
inline float reduce_add(F32 x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float reduce_max(F32 x) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
inline I32 to_int(F32 x) { return {_mm512_cvtps_epi32(x.v)}; }
inline F32 to_float(I32 x) { return {_mm512_cvtepi32_ps(x.v)}; }
inline F32 power_of_two(I32 n) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23))};
}
inline F32 round_bf16(F32 x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  return {_mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}
inline void store_bf16(bfloat16* p, F32 x) {
  const __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x.v), 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
}
inline void store_int8(std::int8_t* p, I32 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(x.v));
}

inline Native native_set1(float x) { return set1(x); }
inline Native native_load(const float* p) { return load(p); }
inline void native_store(float* p, Native x) { store(p, x); }
inline void native_pairs(const bfloat16* p, Native& even, Native& odd) {
  const __m512i bits = _mm512_loadu_si512(p);
  even.v = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
  odd.v = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline F32 load_half(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

/// Asks for the weights that follow p in its stream, for one line of them at a time: a page ahead into the second-level
/// cache, which covers the latency of memory and sets the CPU's own prefetcher going on that page, and a little ahead
/// into the first. Either alone reaches three quarters of the bandwidth of a Xeon 6. The compiler would bunch the
/// requests of several lines, which costs another tenth; the empty statements keep it from that.
inline void prefetch_stream(const void* p) {
  constexpr int kNear = 1024, kFar = 4096;
  __asm__ volatile("" ::: "memory");
  _mm_prefetch(static_cast<const char*>(p) + kNear, _MM_HINT_T0);
  _mm_prefetch(static_cast<const char*>(p) + kFar, _MM_HINT_T1);
  __asm__ volatile("" ::: "memory");
}

/// The meta bytes of two groups: sub-scales and zero-points of 16 outputs, a 32-bit lane each, the two groups in its
/// halves.
struct Int4Meta {
  __m512i scales;
  __m512i zeros;

  explicit Int4Meta(const std::uint8_t* meta) {
    const __m512i words = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(meta)));
    scales = _mm512_add_epi16(_mm512_and_si512(words, _mm512_set1_epi16(15)), _mm512_set1_epi16(1));
    zeros = _mm512_srli_epi16(words, 4);
  }
  /// What a zero-point subtracts per unit of activation: sub-scale times zero-point.
  __m512i products() const { return _mm512_mullo_epi16(scales, zeros); }
  /// The sub-scale of one of the two groups in both halves of each lane.
  __m512i scale_pairs(int which) const {
    const __m512i first = _mm512_set4_epi32(0x0d0c0d0c, 0x09080908, 0x05040504, 0x01000100);
    const __m512i second = _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
    return _mm512_shuffle_epi8(scales, which == 0 ? first : second);
  }
  /// The same as 32-bit integers.
  __m512i scale_dwords(int which) const {
    return which == 0 ? _mm512_and_si512(scales, _mm512_set1_epi32(0xffff)) : _mm512_srli_epi32(scales, 16);
  }
};

inline __m512i low_nibbles(__m512i bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
inline __m512i high_nibbles(__m512i bytes) {
#ifdef KWKER_SIMD_GFNI
  // One instruction instead of two: a shift by 4 within bytes as a bit matrix.
  return _mm512_gf2p8affine_epi64_epi8(bytes, _mm512_set1_epi64(0x1020408000000000), 0);
#else
  return _mm512_and_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
#endif
}

inline __m512i broadcast_dword(const void* p) {
  std::int32_t value;
  std::memcpy(&value, p, sizeof value);
  return _mm512_set1_epi32(value);
}

/// -(s z) of the groups of a block, two in the halves of each lane: what a unit of activation adds.
struct Int4Zeros {
  static constexpr int kMost = Int4Layout::kMaxBlock / 64;
  __m512i pairs[kMost];  // 0 past the last group

  Int4Zeros() = default;
  Int4Zeros(const std::uint8_t* w, const Int4Block& block) {
    for (int i = 0; i < kMost; ++i) {
      pairs[i] = _mm512_setzero_si512();
      if (2 * i < block.groups) {
        pairs[i] = _mm512_sub_epi16(pairs[i], Int4Meta(w + block.meta_offset + 32 * i).products());
      }
    }
  }
  /// dot plus what the zero-points add to it, given a row's group sums.
  __m512i add_to(__m512i dot, const std::int16_t* sums) const {
    for (int i = 0; i < kMost; ++i) dot = _mm512_dpwssd_epi32(dot, pairs[i], broadcast_dword(sums + 2 * i));
    return dot;
  }
};

template <int kRows, bool kCommon>
inline void int4_block_dot(const std::uint8_t* w, const Int4Block& shape, const std::int8_t* x,
                           const std::int16_t* x_sums, I32* sums) {
  const Int4Block block = kCommon ? kCommonInt4Block : shape;
  // The sub-scale can multiply the weights, which costs 8 multiplications per 32 inputs whatever the rows, or the sum
  // of a group, which costs 3 instructions a row. Both are exact.
  constexpr bool kScaleSums = kRows <= 2;
  __m512i acc[kRows];
  for (int m = 0; m < kRows; ++m) acc[m] = _mm512_setzero_si512();
  int k = 0;
  for (int g = 0; g < block.groups; ++g) {
    const Int4Meta meta(w + block.meta_offset + g / 2 * 32);
    const __m512i scale = kScaleSums ? meta.scale_dwords(g % 2) : meta.scale_pairs(g % 2);
    __m512i sum[kRows];
    for (int m = 0; m < kRows; ++m) sum[m] = kScaleSums ? _mm512_setzero_si512() : acc[m];
    for (const int end = std::min(k + block.group, block.inputs); k < end; k += 32) {
      const std::uint8_t* nibbles = w + k * 8;
      for (int j = 0; j < 4; ++j) {
        prefetch_stream(nibbles + 64 * j);
        const __m512i bytes = _mm512_loadu_si512(nibbles + 64 * j);
        __m512i first = low_nibbles(bytes), second = high_nibbles(bytes);
        if constexpr (!kScaleSums) {
          // A byte pair b0 + 256 b1 times s is s b0 + 256 s b1, and s b0 <= 240 never carries: one multiply scales
          // both.
          first = _mm512_mullo_epi16(first, scale);
          second = _mm512_mullo_epi16(second, scale);
        }
        for (int m = 0; m < kRows; ++m) {
          const std::int8_t* values = x + m * Int8Rows::kStride + k + 8 * j;
          sum[m] = _mm512_dpbusd_epi32(sum[m], first, broadcast_dword(values));
          sum[m] = _mm512_dpbusd_epi32(sum[m], second, broadcast_dword(values + 4));
        }
      }
    }
    for (int m = 0; m < kRows; ++m) {
      acc[m] = kScaleSums ? _mm512_add_epi32(acc[m], _mm512_mullo_epi32(sum[m], scale)) : sum[m];
    }
  }
  const Int4Zeros zeros(w, block);
  for (int m = 0; m < kRows; ++m) sums[m].v = zeros.add_to(acc[m], x_sums + m * Int8Rows::kSums);
}
