# SPDX-License-Identifier: Apache-2.0
# Packages by CPack: one tarball of everything, and for Debian a .deb for each component.
#   cmake --preset package && cmake --build --preset package && cpack --preset package
# The preset's prefix is /usr, so that libraries lie where Debian's do; the packages of other builds
# have them in /usr/lib.
set(S24_MAINTAINER "sparse24 maintainers <maintainers@sparse24.invalid>" CACHE STRING
  "Who answers for the .deb packages: Name <address>")
set(CPACK_GENERATOR "TGZ;DEB")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_NAME sparse24)
set(CPACK_PACKAGE_CONTACT "${S24_MAINTAINER}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME
  sparse24-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS # whatever the umask is
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE sparse24)
set(CPACK_DEBIAN_PACKAGE_RELEASE 0local1) # older than any package of Debian's own
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/finish.cmake)
set(CPACK_S24_SOURCE ${PROJECT_SOURCE_DIR})

# A component with its package, Debian's section, and its description: a phrase, a newline,
# sentences in lines of 80 columns.
macro(s24_component component package section description)
  string(TOUPPER ${component} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  list(APPEND CPACK_S24_PACKAGES ${component}=${package})
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${description}")
endmacro()

set(same "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(about "A matrix is 2:4 when of every four consecutive weights of a row at most two
are not zero. Such a matrix takes nearly half the room and half the work.")
set(CPACK_COMPONENTS_ALL)
set(CPACK_S24_PACKAGES)
set(libraries_depended)
if(BUILD_SHARED_LIBS)
  s24_component(library libsparse24-0 libs "2:4 semi-structured sparsity: prune, check, pack, multiply
${about}
This is the library that makes such matrices and multiplies with them.")
  list(APPEND libraries_depended "libsparse24-0 ${same}")
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS libsparse24-cuda0)
endif()
if(BUILD_SHARED_LIBS AND S24_NN)
  s24_component(nn libsparse24-nn0 libs "models with 2:4 layers: checkpoints, encoders, pruning, training
${about}
This is the library that reads models from Hugging Face folders, prunes, trains
and runs them.")
  set(CPACK_DEBIAN_NN_PACKAGE_DEPENDS "libsparse24-0 ${same}")
  list(APPEND libraries_depended "libsparse24-nn0 ${same}")
  if(DNNL_LIBRARY)
    # oneDNN is opened at run time, so that nothing in the library's file names it.
    file(REAL_PATH ${DNNL_LIBRARY} dnnl_file)
    if(dnnl_file MATCHES "libdnnl\\.so\\.([0-9]+)")
      set(CPACK_DEBIAN_NN_PACKAGE_RECOMMENDS libdnnl${CMAKE_MATCH_1})
    endif()
  endif()
endif()
list(JOIN libraries_depended ", " libraries_depended)
if(TARGET sparse24_cuda)
  s24_component(cuda libsparse24-cuda0 libs "2:4 products, models and training on NVIDIA's GPUs
${about}
This is the plugin that libsparse24 opens for GPUs since Ampere. It needs
NVIDIA's driver, and for dense products cuBLASLt.")
  set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "libsparse24-0 ${same}")
endif()
if(TARGET sparse24_mpi)
  s24_component(mpi libsparse24-mpi0 libs "models trained by several processes with MPI
${about}
This is the plugin that libsparse24-nn opens where processes share a run.")
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "libsparse24-nn0 ${same}")
endif()
s24_component(development libsparse24-dev libdevel "2:4 semi-structured sparsity: headers and links
${about}
This is what programs are compiled with: headers, and files for pkg-config and
CMake.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${libraries_depended}")
if(TARGET sparse24_cli)
  s24_component(tools sparse24 science "make the linear layers of a neural network 2:4 and run them faster
${about}
This is the program that prunes, trains, packs, checks, runs and measures
models.")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${libraries_depended}")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "libsparse24-cuda0, libsparse24-mpi0")
  if(MICROHTTPD_FOUND) # opened by the command serve
    set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS libmicrohttpd12)
  endif()
endif()
# CPack calls ldconfig in scripts; the trigger is Debian's way.
foreach(component LIBRARY NN CUDA MPI)
  set(CPACK_DEBIAN_${component}_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
endforeach()
include(CPack)
