// Included before every source file of llama.cpp when it is built for the comparison. GCC 12's _tile_loadconfig does
// not say that it reads memory, so at -O3 the stores that fill the configuration are dropped and the AMX path dies with
// SIGILL. A compiler barrier before the call keeps them.
#if defined(__x86_64__)
#include <immintrin.h>
#define _tile_loadconfig(config) \
  do {                           \
    __asm__ volatile("" ::: "memory"); \
    (_tile_loadconfig)(config);  \
  } while (0)
#endif
