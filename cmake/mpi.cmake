# SPDX-License-Identifier: Apache-2.0
# libsparse24-mpi, the plugin that calls MPI: a module that libsparse24-nn opens when a run is
# shared among processes. Left out where MPI's headers are not.
if(CMAKE_CROSSCOMPILING OR S24_SANITIZE OR S24_PYTHON OR NOT S24_MPI)
  set(MPI_C_FOUND 0)
else()
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI COMPONENTS C)
endif()
if(NOT MPI_C_FOUND)
  s24_left_out("libsparse24-mpi, training by several processes"
    "MPI brings it; Debian: libopenmpi-dev")
  return()
endif()
file(GLOB mpi_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/mpi/*.c)
add_library(sparse24_mpi MODULE ${mpi_sources})
set_target_properties(sparse24_mpi PROPERTIES PREFIX lib OUTPUT_NAME sparse24-mpi SUFFIX .so.0
  C_VISIBILITY_PRESET hidden C_EXTENSIONS OFF)
target_include_directories(sparse24_mpi PRIVATE ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(sparse24_mpi PRIVATE s24_flags MPI::MPI_C)
# CMake gives a module no soname; the loader's cache and packagers go by it.
target_link_options(sparse24_mpi PRIVATE LINKER:-soname,libsparse24-mpi.so.0)
