# SPDX-License-Identifier: Apache-2.0
# With ORRERY_SYNTAX_ONLY the compiler reads each file, instantiates its templates and stops there: in
# 60 % of the time of -O0 a build finds every missing include. Objects, libraries and programs are
# empty files. What only a linker finds shows in any other build.
if(ORRERY_SYNTAX_ONLY)
  set(orrery_touch "${CMAKE_COMMAND} -E touch")
  set(CMAKE_CXX_COMPILE_OBJECT
    "<CMAKE_CXX_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -fsyntax-only <SOURCE>" "${orrery_touch} <OBJECT>")
  set(CMAKE_CUDA_COMPILE_WHOLE_COMPILATION "${orrery_touch} <OBJECT>")  # unity does not join these
  set(CMAKE_CUDA_COMPILE_SEPARATE_COMPILATION "${orrery_touch} <OBJECT>")
  foreach(language CXX CUDA)
    set(CMAKE_${language}_CREATE_STATIC_LIBRARY "${orrery_touch} <TARGET>")
    set(CMAKE_${language}_CREATE_SHARED_LIBRARY "${orrery_touch} <TARGET>")
    set(CMAKE_${language}_CREATE_SHARED_MODULE "${orrery_touch} <TARGET>")
    set(CMAKE_${language}_LINK_EXECUTABLE "${orrery_touch} <TARGET>")
  endforeach()
endif()
