# SPDX-License-Identifier: Apache-2.0
# libsparse24-cuda, the plugin for NVIDIA's GPUs: a module that libsparse24 opens at run time.
# Included where it is asked for (S24_CUDA); a GPU is not needed to build it.
set(oldest_nvcc 12.8)
find_program(S24_NVCC nvcc HINTS /usr/local/cuda/bin)
mark_as_advanced(S24_NVCC)
if(NOT S24_NVCC)
  message(FATAL_ERROR "S24_CUDA=ON needs nvcc ${oldest_nvcc} or later; none is in PATH or in "
    "/usr/local/cuda/bin (S24_NVCC=PATH names one)")
endif()
if(CMAKE_CROSSCOMPILING OR S24_SANITIZE OR NOT CMAKE_C_COMPILER_ID STREQUAL GNU)
  message(FATAL_ERROR "S24_CUDA=ON needs gcc for this machine, without sanitizers")
endif()
set(CMAKE_CUDA_COMPILER ${S24_NVCC})
# Code for compute capability 8.x, from 8.9 on as PTX for those to come, and Hopper's own.
set(CMAKE_CUDA_ARCHITECTURES 80-real 89 90a-real)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS oldest_nvcc)
  message(FATAL_ERROR "S24_CUDA=ON needs nvcc ${oldest_nvcc} or later; ${S24_NVCC} is "
    "${CMAKE_CUDA_COMPILER_VERSION}")
endif()
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
file(GLOB cuda_hopper CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/linear/linear*.cu
  ${PROJECT_SOURCE_DIR}/src/cuda/attention/attention*.cu
  ${PROJECT_SOURCE_DIR}/src/cuda/blocks/blocks*.cu
  ${PROJECT_SOURCE_DIR}/src/cuda/train/train_attention_*.cu)
list(REMOVE_ITEM cuda_sources ${cuda_hopper})
add_library(sparse24_cuda_hopper OBJECT ${cuda_hopper})
add_library(sparse24_cuda MODULE ${cuda_sources} $<TARGET_OBJECTS:sparse24_cuda_hopper>)
set_target_properties(sparse24_cuda_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
set_target_properties(sparse24_cuda PROPERTIES PREFIX lib OUTPUT_NAME sparse24-cuda SUFFIX .so.0)
foreach(target sparse24_cuda sparse24_cuda_hopper)
  set_target_properties(${target} PROPERTIES CUDA_VISIBILITY_PRESET hidden CUDA_STANDARD 17
    CUDA_RUNTIME_LIBRARY Static POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE s24_harden)
  # ptxas says only in a warning that it serialised the tensor cores' work.
  if(S24_WERROR)
    target_compile_options(${target} PRIVATE -Werror=all-warnings -Xptxas=-Werror)
  endif()
endforeach()
# CMake gives a module no soname; the loader's cache and packagers go by it.
target_link_options(sparse24_cuda PRIVATE LINKER:-soname,libsparse24-cuda.so.0)
# The random choice has the CPU's bits only where products and sums stay apart.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cuda/weight/weight16.cu
  ${PROJECT_SOURCE_DIR}/src/cuda/weight/select.cu PROPERTIES COMPILE_OPTIONS --fmad=false)