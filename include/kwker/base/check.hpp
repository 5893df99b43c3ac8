// Internal consistency checks: active in Debug and sanitizer builds, absent from Release.
#pragma once

#ifdef KWKER_ENABLE_DCHECKS
#include <cstdio>
#include <cstdlib>
#define KWKER_DCHECK(condition)                                                          \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
#else
#define KWKER_DCHECK(condition) \
  do {                          \
  } while (false)
#endif
