# Compile options that every target of this project shares.
add_library(kwker_options INTERFACE)
# Contraction of a*b+c would make a result depend on the instruction set; see docs/numerics.md.
target_compile_options(kwker_options INTERFACE -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow)
if(KWKER_WERROR)
  target_compile_options(kwker_options INTERFACE -Werror)
endif()
if(KWKER_SANITIZE)
  target_compile_options(kwker_options INTERFACE -fsanitize=${KWKER_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all)
  target_link_options(kwker_options INTERFACE -fsanitize=${KWKER_SANITIZE})
endif()
if(KWKER_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(kwker_options INTERFACE KWKER_ENABLE_DCHECKS)
endif()

find_program(CCACHE ccache)
if(CCACHE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
