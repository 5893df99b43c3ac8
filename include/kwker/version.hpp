// The version of the library; the Python package and CMake read it from here.
#pragma once

#define KWKER_VERSION "0.1.0"
