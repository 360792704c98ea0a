# SPDX-License-Identifier: Apache-2.0
# Declares this project's libraries, programs and tests, all with the same warnings and include root.

find_program(CCACHE ccache)
if(CCACHE AND NOT ORRERY_SYNTAX_ONLY)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(orrery_flags INTERFACE)
target_include_directories(orrery_flags INTERFACE ${CMAKE_SOURCE_DIR})
# Options of the C++ compiler; nvcc passes on only what -Xcompiler names.
function(orrery_cxx_options)
  foreach(option ${ARGN})
    target_compile_options(orrery_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${option}>)
  endforeach()
endfunction()
# What compiles a program for the first answer: no optimisation, each library as one file, and what most files include
# parsed once.
if(ORRERY_QUICK)
  set(CMAKE_CXX_FLAGS_RELEASE "-O0 -DNDEBUG -w")
  target_compile_definitions(orrery_flags INTERFACE FMT_CONSTEVAL=)  # formats are checked by the optimised build
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    orrery_cxx_options("SHELL:--param ggc-min-heapsize=400000" -ffold-simple-inlines)
  endif()
endif()
# Every build gives the same figures: none turns a * b + c into one operation. Plain x86-64 has no such instruction.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  orrery_cxx_options(-ffp-contract=off)
endif()
orrery_cxx_options(-Wall -Wextra -Wshadow -Wswitch -Wno-missing-field-initializers)
# GCC 12 warns wrongly about "text" + std::string (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  orrery_cxx_options(-Wno-restrict)
endif()
if(ORRERY_WERROR)
  orrery_cxx_options(-Werror)
  target_compile_options(orrery_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
if(ORRERY_SANITIZE)
  # -O2 -g compiles six times as long: GCC tracks variables through all that the sanitizers add. Traces keep their lines.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-Og -g1 -DNDEBUG")
  set(sanitizers address,undefined)
  if(ORRERY_SANITIZE STREQUAL "THREAD")
    set(sanitizers thread)
    orrery_cxx_options(-Wno-tsan)  # its fences are not modelled: libraries' own
  endif()
  orrery_cxx_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(orrery_flags INTERFACE -fsanitize=${sanitizers})
  # With them GCC takes std::regex and others for uninitialised (its bug 105562).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    orrery_cxx_options(-Wno-maybe-uninitialized)
  endif()
endif()

# Of what gets installed: no path of the build machine in messages.
function(orrery_hide_paths name)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>)
endfunction()

# Of the first answer's program on few cores: files of many libraries are compiled together, as two parts. What each library would parse
# and instantiate again is compiled once, in two thirds of the CPU time; more cores are done sooner with a file per library
# (./plan says which). A name without linkage stands for one thing in a part.
set(ORRERY_PARTS lower upper)
option(ORRERY_TWO_PARTS "Compile the first answer's program as two parts, for two cores" ON)

# orrery_add_to_part(SOURCES DEPS): moves the sources to ORRERY_PART and leaves a file without code in their place.
function(orrery_add_to_part sources deps)
  get_property(others GLOBAL PROPERTY ORRERY_SOURCES_${ORRERY_PART})
  list(TRANSFORM ${sources} PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE here)
  set_property(GLOBAL PROPERTY ORRERY_SOURCES_${ORRERY_PART} ${here} ${others})  # the lowest library first
  foreach(dep ${${deps}})
    if(NOT dep MATCHES "^orrery_")
      set_property(GLOBAL APPEND PROPERTY ORRERY_DEPS_${ORRERY_PART} ${dep})
    endif()
  endforeach()
  file(CONFIGURE OUTPUT none.cc CONTENT "// Its files are compiled in a part.\n")
  set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/none.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  set(${sources} ${CMAKE_CURRENT_BINARY_DIR}/none.cc PARENT_SCOPE)
endfunction()

# Behind the last library: the parts, which orrery_program links.
function(orrery_make_parts)
  foreach(part ${ORRERY_PARTS})
    get_property(sources GLOBAL PROPERTY ORRERY_SOURCES_${part})
    get_property(deps GLOBAL PROPERTY ORRERY_DEPS_${part})
    list(REMOVE_DUPLICATES deps)
    list(TRANSFORM sources REPLACE "(.+)" "#include \"\\1\"")
    list(JOIN sources "\n" sources)
    file(CONFIGURE OUTPUT ${part}.cc CONTENT "${sources}\n" @ONLY)
    add_library(orrery_part_${part} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${part}.cc)
    target_link_libraries(orrery_part_${part} PRIVATE orrery_flags ${deps})
    target_precompile_headers(orrery_part_${part} REUSE_FROM orrery_quick_headers)
    orrery_hide_paths(orrery_part_${part})
  endforeach()
endfunction()

# Of a library in the build of first answers: what `plan` leaves out there, as one file for the other programs.
function(orrery_add_later name sources deps later_deps)
  add_library(${name}_later OBJECT EXCLUDE_FROM_ALL ${${sources}})
  target_link_libraries(${name}_later PRIVATE orrery_flags ${${deps}} ${${later_deps}})
  orrery_hide_paths(${name}_later)
  set_target_properties(${name}_later PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  target_precompile_headers(${name}_later REUSE_FROM orrery_quick_headers)
  set_property(GLOBAL APPEND PROPERTY ORRERY_LATER ${name}_later)
  set_property(GLOBAL APPEND PROPERTY ORRERY_LATER_DEPS ${${later_deps}})
endfunction()

# orrery_link_later(PROGRAM ...), behind all libraries: programs of first answers that leave nothing out.
function(orrery_link_later)
  get_property(all_later GLOBAL PROPERTY ORRERY_LATER)
  get_property(deps GLOBAL PROPERTY ORRERY_LATER_DEPS)
  list(TRANSFORM all_later REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  foreach(program ${ARGN})
    target_sources(${program} PRIVATE ${all_later})
    target_link_libraries(${program} PRIVATE ${deps})
  endforeach()
endfunction()

# orrery_library(NAME SOURCES a.cc ... [ALONE c.cc ...] [LATER b.cc ...] DEPS orrery_base fmt::fmt ... [LATER_DEPS ...])
# ALONE: compiled apart from the others, for macros or options of its own.
# LATER: what the first answer's `plan` leaves out; model/program/plan/first_answer.cc stands for all that others call.
function(orrery_library name)
  cmake_parse_arguments(A "" "" "SOURCES;ALONE;LATER;DEPS;LATER_DEPS" ${ARGN})
  if(ORRERY_QUICK AND A_LATER)
    orrery_add_later(${name} A_LATER A_DEPS A_LATER_DEPS)
  elseif(NOT ORRERY_QUICK)
    list(APPEND A_SOURCES ${A_LATER})
    list(APPEND A_DEPS ${A_LATER_DEPS})
  endif()
  if(ORRERY_PART)
    orrery_add_to_part(A_SOURCES A_DEPS)
  endif()
  add_library(${name} STATIC ${A_SOURCES} ${A_ALONE})
  set_source_files_properties(${A_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${name} PUBLIC orrery_flags ${A_DEPS})
  orrery_hide_paths(${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${ORRERY_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  if(ORRERY_QUICK)
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
    target_precompile_headers(${name} REUSE_FROM orrery_quick_headers)
    return()
  endif()
  # ORRERY_SHAREABLE, set for a folder: liborrery and the Python module are made of the same objects as the programs.
  # Calls within a file stay direct, and the linker makes those of a program direct, so that programs lose nothing.
  if(ORRERY_SHAREABLE)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
endfunction()

# orrery_compile_archives(): those of fmt and toml++, for orrery_link_archives.
function(orrery_compile_archives)
  add_library(orrery_fmt_archive STATIC ${CMAKE_SOURCE_DIR}/cmake/fmt_archive.cc)
  target_include_directories(orrery_fmt_archive PRIVATE ${ORRERY_HEADER_fmt})
  if(TARGET tomlplusplus::tomlplusplus)
    add_library(orrery_toml_archive STATIC ${CMAKE_SOURCE_DIR}/cmake/toml_archive.cc)
    target_include_directories(orrery_toml_archive PRIVATE ${ORRERY_HEADER_tomlplusplus})
    target_compile_definitions(orrery_toml_archive PRIVATE TOML_HEADER_ONLY=0)
  endif()
endfunction()

# orrery_link_archives(NAME): a program of archives alone, where the machine has them all.
function(orrery_link_archives name)
  if(NOT ORRERY_HAS_ARCHIVES)
    return()
  endif()
  if(NOT TARGET orrery_fmt_archive)
    orrery_compile_archives()
  endif()
  set_target_properties(${name} PROPERTIES ORRERY_ARCHIVES ON)
  target_link_options(${name} PRIVATE -static-pie)
endfunction()

# orrery_program(NAME SOURCES ... DEPS ...): lands in build/bin, or build/bench when named bench_*.
function(orrery_program name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE orrery_flags ${A_DEPS})
  orrery_hide_paths(${name})
  if(ORRERY_QUICK)
    target_precompile_headers(${name} REUSE_FROM orrery_quick_headers)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:orrery_quick_headers>)
    if(ORRERY_TWO_PARTS)
      foreach(part ${ORRERY_PARTS})
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:orrery_part_${part}>)
      endforeach()
    endif()
  endif()
  if(ORRERY_STATIC)
    orrery_link_archives(${name})
  endif()
  set(folder bin)
  if(name MATCHES "^bench_")
    set(folder bench)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder}
                        UNITY_BUILD ${ORRERY_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  if(folder STREQUAL "bin")
    set_property(GLOBAL APPEND PROPERTY ORRERY_PROGRAMS ${name})
  endif()
endfunction()

# orrery_fast_allocator(TARGET ...): programs that plan, simulate or fit. Not those with MPI or CUDA, which hook into the
# C library's allocator; not under sanitizers, which bring their own.
function(orrery_fast_allocator)
  if(TARGET orrery_jemalloc AND NOT ORRERY_SANITIZE)
    foreach(name ${ARGN})
      target_link_libraries(${name} PRIVATE orrery_jemalloc)
      target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/jemalloc_options.cc)
    endforeach()
  endif()
endfunction()

# orrery_compile_quickly(TARGET ...): with -Og, in about 60 % of the time of -O2. For code that reads flags and writes
# answers, which runs for milliseconds.
function(orrery_compile_quickly)
  foreach(name ${ARGN})
    target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:${ORRERY_QUICK}>>>:-Og>)
  endforeach()
endfunction()

# Gives a test the headers that tests/CMakeLists.txt has parsed once for all of them.
function(orrery_share_test_headers name)
  target_precompile_headers(${name} REUSE_FROM orrery_test_headers)
  if(CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Without both ccache keeps nothing that used a precompiled header.
    target_compile_options(${name} PRIVATE -fpch-preprocess)
    set_target_properties(${name} PROPERTIES
      CXX_COMPILER_LAUNCHER "env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CCACHE}")
  endif()
endfunction()

# orrery_test(NAME [LABEL unit|integration|slow] [COST seconds] [SLOW] SOURCES ... [ALONE ...] DEPS ...): one GoogleTest
# binary, registered as one CTest entry. unit: ./check --unit runs it; integration: ./check; slow: ./check --all.
# SLOW: cases of suites and instances whose name ends in `Slow` are a second entry, NAME_slow.
# COST: of the longest, so that a first run starts with them. It finds the source tree in ORRERY_SOURCE_DIR. ALONE: of the sources, those whose local names clash with others', kept out of unity builds. A test's own code is
# compiled quickly; what it tests is compiled as ever.
function(orrery_test name)
  cmake_parse_arguments(A "SLOW" "LABEL;COST" "SOURCES;ALONE;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  set_source_files_properties(${A_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${name} PRIVATE orrery_flags GTest::gtest_main GTest::gmock fmt::fmt ${A_DEPS})
  if(TARGET orrery_test_headers)
    orrery_share_test_headers(${name})
  endif()
  target_compile_definitions(${name} PRIVATE ORRERY_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             ORRERY_BINARY_DIR="${CMAKE_BINARY_DIR}")
  orrery_compile_quickly(${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${ORRERY_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  set(cases "")
  if(A_SLOW)
    set(cases --gtest_filter=-*Slow.*:*Slow/*)
    add_test(NAME ${name}_slow COMMAND ${name} --gtest_filter=*Slow.*:*Slow/* WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name}_slow PROPERTIES LABELS slow COST 60 FAIL_REGULAR_EXPRESSION "Running 0 tests"
                         ENVIRONMENT XDG_DATA_HOME=${CMAKE_BINARY_DIR}/no-user-files)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${cases} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT A_LABEL)
    set(A_LABEL unit)
  endif()
  # Files of the user who runs the tests must not change them.
  set(environment XDG_DATA_HOME=${CMAKE_BINARY_DIR}/no-user-files)
  if(ORRERY_SANITIZE STREQUAL "THREAD")
    list(APPEND environment TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp)
  elseif(ORRERY_SANITIZE)
    # Whole stacks, or what MPI allocates and never frees could not be told from what we leak.
    list(APPEND environment LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0
         ASAN_OPTIONS=fast_unwind_on_malloc=0)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${A_LABEL} ENVIRONMENT "${environment}")
  if(A_COST)
    set_tests_properties(${name} PROPERTIES COST ${A_COST})
  endif()
  if(NOT A_LABEL STREQUAL "slow")
    set_property(GLOBAL APPEND PROPERTY ORRERY_QUICK_TESTS ${name})
  endif()
endfunction()

# orrery_full(NAME VARIABLE=VALUE FILTER): the same binary as a slow test with all cases of what ./check samples: tests
# read VARIABLE by FromEnvironment().
function(orrery_full name variable filter)
  add_test(NAME ${name}_full COMMAND ${name} --gtest_filter=${filter} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name}_full PROPERTIES LABELS slow COST 60
                       ENVIRONMENT "${variable};XDG_DATA_HOME=${CMAKE_BINARY_DIR}/no-user-files")
endfunction()

# Targets `programs`, and `quick`: what ./check builds, all programs and the tests that are not slow.
function(orrery_add_group_targets)
  get_property(programs GLOBAL PROPERTY ORRERY_PROGRAMS)
  get_property(tests GLOBAL PROPERTY ORRERY_QUICK_TESTS)
  add_custom_target(programs DEPENDS ${programs})
  add_custom_target(quick DEPENDS ${programs} ${tests})
endfunction()
