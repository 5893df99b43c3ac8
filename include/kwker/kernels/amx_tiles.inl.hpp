// The instructions on AMX tiles (Intel SDM, volume 2), with the numbers of tiles as template arguments. Written as
// assembly because the compilers' intrinsics do not say that they read and write memory: GCC 12 drops the stores before
// a _tile_loadconfig and moves others past tile loads.

constexpr int kTileRows = 16;

/// 64 bytes: palette, row sizes, rows. See TileScope.
inline void tile_configure(const void* config) {
  __asm__ volatile("ldtilecfg %0" ::"m"(*static_cast<const std::uint8_t(*)[64]>(config)) : "memory");
}
inline void tile_release() { __asm__ volatile("tilerelease" ::: "memory"); }

template <int kTile>
inline void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
/// Rows of 64 bytes, `stride` bytes apart.
template <int kTile>
inline void tile_load(const void* rows, std::int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void tile_store(void* rows, std::int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
}
/// sum += signed bytes of a times unsigned bytes of b, in 32 bits.
template <int kSum, int kA, int kB>
inline void tile_multiply_bytes() {
  __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}
/// sum += bfloat16 pairs of a times those of b: the even elements in an FMA chain from zero, the odd ones in another.
template <int kSum, int kA, int kB>
inline void tile_multiply_bf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}
