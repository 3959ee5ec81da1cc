# SPDX-License-Identifier: Apache-2.0
# Libraries, headers, the command line, pkg-config files and the CMake package. Found afterwards as
#   pkg-config sparse24, sparse24-nn    or    find_package(sparse24), sparse24::sparse24, sparse24::nn
# The components are the packages of package.cmake.
set(libraries sparse24)
set_target_properties(sparse24 PROPERTIES EXPORT_NAME sparse24)
install(FILES include/sparse24/sparse24.h include/sparse24/formats.h include/sparse24/integers.h
  include/sparse24/layouts.h include/sparse24/lifted.h include/sparse24/low_rank.h
  include/sparse24/masks.h include/sparse24/notes.h
  include/sparse24/device.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sparse24 COMPONENT development)
if(S24_NN)
  list(APPEND libraries sparse24_nn)
  set_target_properties(sparse24_nn PROPERTIES EXPORT_NAME nn INSTALL_RPATH "$ORIGIN")
  install(FILES include/sparse24/nn.h include/sparse24/checkpoints.h include/sparse24/language.h
    include/sparse24/task.h include/sparse24/comm.h include/sparse24/train.h
    include/sparse24/late.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sparse24 COMPONENT development)
endif()

if(BUILD_SHARED_LIBS)
  set(map ${CMAKE_CURRENT_BINARY_DIR}/sparse24.map)
  configure_file(cmake/sparse24.map ${map} @ONLY)
  foreach(library ${libraries})
    target_link_options(${library} PRIVATE LINKER:--version-script=${map})
    set_target_properties(${library} PROPERTIES LINK_DEPENDS ${map})
  endforeach()
elseif(S24_NN)
  list(APPEND libraries s24_dense_engine) # a static library passes its needs on to the linker
endif()

foreach(library ${libraries})
  set(component library)
  if(library STREQUAL sparse24_nn)
    set(component nn)
  endif()
  install(TARGETS ${library} EXPORT sparse24Targets
    LIBRARY COMPONENT ${component} NAMELINK_COMPONENT development ARCHIVE COMPONENT development)
endforeach()

if(TARGET sparse24_cuda)
  install(TARGETS sparse24_cuda DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda)
endif()

if(TARGET sparse24_mpi)
  install(TARGETS sparse24_mpi DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi)
endif()

if(TARGET sparse24_cli)
  # The libraries lie beside the program in the build tree, and in their own folder once installed.
  file(RELATIVE_PATH libraries_from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(sparse24_cli PROPERTIES
    INSTALL_RPATH "$ORIGIN;$ORIGIN/${libraries_from_program}")
  install(TARGETS sparse24_cli COMPONENT tools)
  get_target_property(pages sparse24_cli S24_MAN_PAGES) # written by the build, see cli/
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  endif()
  get_target_property(completions sparse24_cli S24_COMPLETIONS)
  get_target_property(completion_dir sparse24_cli S24_COMPLETION_DIR)
  set(shell_dir_bash bash-completion/completions)
  set(shell_dir_zsh zsh/site-functions)
  set(shell_dir_fish fish/vendor_completions.d)
  if(CMAKE_INSTALL_PREFIX STREQUAL /usr AND EXISTS /etc/debian_version)
    set(shell_dir_zsh zsh/vendor-completions) # where Debian's zsh looks for what packages bring
  endif()
  foreach(completion ${completions})
    string(REPLACE "=" ";" completion ${completion})
    list(POP_FRONT completion shell file)
    install(FILES ${completion_dir}/${file}
      DESTINATION ${CMAKE_INSTALL_DATADIR}/${shell_dir_${shell}} COMPONENT tools)
  endforeach()
  if(MICROHTTPD_FOUND)
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/sparse24@.service)
    configure_file(cmake/sparse24@.service.in ${unit} @ONLY)
    install(FILES ${unit} DESTINATION lib/systemd/system COMPONENT tools)
  endif()
endif()

# pkg-config: the prefix is found from the file's own place, so that the tree can be moved.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix_from_pc "${prefix_from_pc}")
# What libsparse24-nn is made of, for static linking alone. Not as Requires.private: pkg-config
# would ask users of the shared library for the headers of all of it.
set(nn_flags "")
if(S24_NN)
  set(nn_flags ${UTF8PROC_STATIC_LDFLAGS} ${XXHASH_STATIC_LDFLAGS})
  get_target_property(nn_libraries s24_dense_engine INTERFACE_LINK_LIBRARIES)
  if(JPEG_FOUND)
    list(APPEND nn_libraries ${JPEG_LIBRARIES})
  endif()
  foreach(library ${nn_libraries})
    if(library MATCHES "/lib([^/]*)\\.(so|a)")
      list(APPEND nn_flags -l${CMAKE_MATCH_1})
    endif()
  endforeach()
  foreach(folder ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES})
    list(REMOVE_ITEM nn_flags -L${folder})
  endforeach()
  list(REMOVE_DUPLICATES nn_flags)
  list(JOIN nn_flags " " nn_flags)
endif()
configure_file(cmake/sparse24.pc.in sparse24.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sparse24.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
if(S24_NN)
  configure_file(cmake/sparse24-nn.pc.in sparse24-nn.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/sparse24-nn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sparse24)
configure_package_config_file(cmake/sparse24Config.cmake.in sparse24Config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(sparse24ConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sparse24Config.cmake
  ${PROJECT_BINARY_DIR}/sparse24ConfigVersion.cmake DESTINATION ${package_dir}
  COMPONENT development)
install(EXPORT sparse24Targets NAMESPACE sparse24:: DESTINATION ${package_dir}
  COMPONENT development)
