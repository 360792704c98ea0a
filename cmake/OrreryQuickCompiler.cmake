# SPDX-License-Identifier: Apache-2.0
# The compiler of the first answer's program: clang++ where it is installed and takes this machine's C++ library, for it
# needs about 60 % of g++'s time without optimisation. Before project(). CXX and -DCMAKE_CXX_COMPILER say otherwise.
if(CMAKE_CXX_COMPILER OR DEFINED ENV{CXX})
  return()
endif()
find_program(ORRERY_CLANG NAMES clang++ clang++-19 clang++-16 clang++-14)
if(ORRERY_CLANG)
  set(sample ${CMAKE_BINARY_DIR}/clang_sample.cc)
  file(WRITE ${sample} "#include <algorithm>\n#include <filesystem>\n#include <span>\n#include <vector>\n"
       "int main() { std::vector<int> v{2, 1}; std::ranges::sort(v);\n"
       "  return static_cast<int>(std::span(v).size()) - 2; }\n")
  execute_process(COMMAND ${ORRERY_CLANG} -std=c++20 -O0 -o ${CMAKE_BINARY_DIR}/clang_sample ${sample}
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed EQUAL 0)
    set(CMAKE_CXX_COMPILER ${ORRERY_CLANG} CACHE FILEPATH "C++ compiler")
  endif()
endif()
