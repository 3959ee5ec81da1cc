# SPDX-License-Identifier: Apache-2.0
# libsparse24-cuda, the plugin for NVIDIA's Hopper GPUs: a module that libsparse24 opens at run time.
# Built where nvcc is, also on machines without a GPU; left out elsewhere.
find_program(S24_NVCC nvcc HINTS /usr/local/cuda/bin)
mark_as_advanced(S24_NVCC)
if(NOT S24_NVCC OR CMAKE_CROSSCOMPILING OR S24_SANITIZE OR CMAKE_C_COMPILER_ID MATCHES Clang)
  message(STATUS "CUDA: no nvcc for this build, libsparse24-cuda is left out")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${S24_NVCC})
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
enable_language(CUDA)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
add_library(sparse24_cuda MODULE ${cuda_sources})
set_target_properties(sparse24_cuda PROPERTIES PREFIX lib OUTPUT_NAME sparse24-cuda SUFFIX .so.0
  CUDA_VISIBILITY_PRESET hidden CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static)
target_include_directories(sparse24_cuda PRIVATE ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR}/src)
# The random choice has the CPU's bits only where products and sums stay apart.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cuda/weight16.cu
  ${PROJECT_SOURCE_DIR}/src/cuda/select.cu PROPERTIES COMPILE_OPTIONS --fmad=false)
# ptxas says only in a warning that it serialised the tensor cores' work.
if(S24_WERROR)
  target_compile_options(sparse24_cuda PRIVATE -Werror=all-warnings -Xptxas=-Werror)
endif()
