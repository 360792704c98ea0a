# SPDX-License-Identifier: Apache-2.0
# What a user gets: `cmake --build build --target product && cmake --install build --prefix P`, or `cpack -G DEB` in the
# build folder. Nothing installed names the source tree: programs find their catalogues from where they lie
# (model/arch/data_root.h), so that P may be moved.
if(ORRERY_SYNTAX_ONLY OR ORRERY_SANITIZE)
  return()
endif()
include(GNUInstallDirs)
set(orrery_data ${CMAKE_INSTALL_DATADIR}/orrery)

# Programs of a build folder elsewhere find the catalogues as installed ones do.
cmake_path(IS_PREFIX CMAKE_SOURCE_DIR ${CMAKE_BINARY_DIR} orrery_build_inside)
if(NOT orrery_build_inside)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/share/orrery SYMBOLIC)
endif()

get_property(orrery_programs GLOBAL PROPERTY ORRERY_PROGRAMS)
list(REMOVE_ITEM orrery_programs plan-shapes plan)  # plan-shapes measures kernels for calib/, from the source tree
# Libraries outside of the system's folders (CUDA) are looked for where they were.
set_target_properties(${orrery_programs} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS plan RUNTIME)
install(TARGETS ${orrery_programs} RUNTIME OPTIONAL)  # without the target `product`: those that ./plan has built

# Catalogues: what is read by name, with the texts that explain how to write one's own.
foreach(folder scenarios topologies offers calib/profiles)
  install(DIRECTORY ${folder}/ DESTINATION ${orrery_data}/${folder}
          FILES_MATCHING PATTERN "*.yaml" PATTERN "README.md" PATTERN "trust.json" PATTERN "left_out.csv"
          PATTERN "template.txt" PATTERN "corpus.txt")
endforeach()
install(DIRECTORY calib/data/ DESTINATION ${orrery_data}/calib/data
        FILES_MATCHING PATTERN "*.csv" PATTERN "README.md" PATTERN "logs" EXCLUDE)
install(FILES README.md CHANGELOG.md TYPE DOC)
install(FILES LICENSE TYPE DOC RENAME copyright)
set(CPACK_PACKAGE_NAME orrery)
set(CPACK_PACKAGE_VENDOR "Orrery")
set(CPACK_PACKAGE_CONTACT "Orrery maintainers <maintainers@orrery.example>")
set(CPACK_STRIP_FILES ON)

# Completion and man pages, written by the programs themselves and from their help texts.
set(shells ${CMAKE_BINARY_DIR}/shells)
add_custom_command(
  OUTPUT ${shells}/plan ${shells}/_plan ${shells}/plan.fish
  COMMAND ${CMAKE_COMMAND} -E make_directory ${shells}
  COMMAND plan completion bash > ${shells}/plan
  COMMAND plan completion zsh > ${shells}/_plan
  COMMAND plan completion fish > ${shells}/plan.fish
  DEPENDS plan VERBATIM)
install(FILES ${shells}/plan DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${shells}/_plan DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${shells}/plan.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

file(GLOB help_texts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/model/program/help/*.txt)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/man/plan.1
  COMMAND ${CMAKE_COMMAND} -DHELP=${CMAKE_SOURCE_DIR}/model/program/help -DOUT=${CMAKE_BINARY_DIR}/man
          -DVERSION=${PROJECT_VERSION} -P ${CMAKE_SOURCE_DIR}/cmake/man_pages.cmake
  DEPENDS ${help_texts} ${CMAKE_SOURCE_DIR}/cmake/man_pages.cmake VERBATIM)
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")

# For people without root or Debian: unpacked anywhere, it needs a kernel and nothing else.
if(ORRERY_STATIC)
  add_custom_target(product ALL DEPENDS plan ${orrery_programs} ${shells}/plan ${CMAKE_BINARY_DIR}/man/plan.1)
  set(CPACK_GENERATOR TXZ)
  set(CPACK_PACKAGE_FILE_NAME orrery-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
  set(CPACK_PACKAGING_INSTALL_PREFIX /)
  set(CPACK_THREADS 0)
  include(CPack)
  return()
endif()

# The library for find_package(Orrery): all that predicts and searches, as one shared library, so that a user needs none
# of ours but this and knows its catalogues by where it lies.
set(orrery_parts base arch hardware ir lower framework collectives price network closed event memory twin exchange
    provision discover)
list(TRANSFORM orrery_parts REPLACE "(.+)" "$<TARGET_OBJECTS:orrery_\\1>")
add_library(orrery SHARED ${orrery_parts})
target_link_libraries(orrery PRIVATE yaml-cpp EXPAT::EXPAT orrery_xxhash Threads::Threads ${CMAKE_DL_LIBS}
                      $<TARGET_NAME_IF_EXISTS:tomlplusplus::tomlplusplus> PUBLIC fmt::fmt)
target_link_options(orrery PRIVATE -Wl,--no-undefined)
target_compile_features(orrery PUBLIC cxx_std_20)
target_include_directories(orrery INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/orrery>)
set_target_properties(orrery PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
install(TARGETS orrery EXPORT Orrery LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY model DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/orrery FILES_MATCHING PATTERN "*.h"
        PATTERN "program" EXCLUDE PATTERN "report" EXCLUDE PATTERN "help" EXCLUDE)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Orrery)
install(EXPORT Orrery NAMESPACE Orrery:: DESTINATION ${package})
include(CMakePackageConfigHelpers)
file(WRITE ${CMAKE_BINARY_DIR}/OrreryConfig.cmake
     "include(CMakeFindDependencyMacro)\nfind_dependency(fmt)\ninclude(\${CMAKE_CURRENT_LIST_DIR}/Orrery.cmake)\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/OrreryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/OrreryConfig.cmake ${CMAKE_BINARY_DIR}/OrreryConfigVersion.cmake DESTINATION ${package})

# The Python package, where there is one (calib/program/python).
if(TARGET orrery_python)
  # Where Python looks without being told: Debian's packages, what an administrator adds, and users (~/.local) and
  # environments. Known when the prefix is.
  set(version ${orrery_python_version})
  install(CODE "
set(orrery_modules lib/python${version}/site-packages)
if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
  set(orrery_modules lib/python3/dist-packages)
elseif(CMAKE_INSTALL_PREFIX STREQUAL \"/usr/local\")
  set(orrery_modules lib/python${version}/dist-packages)
endif()")
  install(TARGETS orrery_python LIBRARY DESTINATION "\${orrery_modules}/orrery")
  install(FILES calib/program/python/orrery/__init__.py calib/program/python/orrery/py.typed
          DESTINATION "\${orrery_modules}/orrery")
endif()

add_custom_target(product ALL DEPENDS plan ${orrery_programs} $<TARGET_NAME_IF_EXISTS:orrery_python> orrery ${shells}/plan ${CMAKE_BINARY_DIR}/man/plan.1)

# The package. Its dependencies are those of its programs and libraries, found by dpkg-shlibdeps.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plans, simulates and runs distributed training")
set(CPACK_PACKAGE_DESCRIPTION "Given a model and a cluster, ranks the parallel layouts of its training, predicts step time and
memory with intervals, says what limits the best and runs the same plan for real.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# CUDA's libraries are no packages of Debian's: programs load them where a GPU is asked for.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, python3")  # several ranks of `plan run`; the Python package
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, libfmt-dev, iproute2")  # find_package(Orrery); plan lab
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
include(CPack)
