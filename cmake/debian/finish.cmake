# SPDX-License-Identifier: Apache-2.0
# What Debian's packages have beside what is installed: documents and compressed pages. They have no
# RUNPATH, as their libraries lie where the loader looks anyway. CPack runs this when the files of
# each component lie in a folder of their own.
#
# With SOURCE_DATE_EPOCH every file of every package is of that time, so that two builds give the
# same bytes.
function(date_all)
  if(DEFINED ENV{SOURCE_DATE_EPOCH})
    execute_process(COMMAND find ${CPACK_TEMPORARY_INSTALL_DIRECTORY} -exec
      touch --no-dereference --date=@$ENV{SOURCE_DATE_EPOCH} {} + COMMAND_ERROR_IS_FATAL ANY)
  endif()
endfunction()
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  date_all()
  return()
endif()
string(TIMESTAMP day "%a, %d %b %Y %H:%M:%S +0000" UTC)
function(compress)
  execute_process(COMMAND gzip -9nf ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(pair ${CPACK_S24_PACKAGES})
  string(REPLACE "=" ";" pair ${pair})
  list(POP_FRONT pair component package)
  set(usr ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr)
  set(documents ${usr}/share/doc/${package})
  file(WRITE ${documents}/changelog.Debian
    "sparse24 (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
    "  * Packaged by CPack; what changed in sparse24 is in changelog.gz.\n\n"
    " -- ${CPACK_PACKAGE_CONTACT}  ${day}\n")
  file(COPY_FILE ${CPACK_S24_SOURCE}/CHANGELOG.md ${documents}/changelog)
  file(COPY_FILE ${CPACK_S24_SOURCE}/cmake/debian/copyright ${documents}/copyright)
  file(GLOB pages ${usr}/share/man/man1/*.1)
  compress(${documents}/changelog.Debian ${documents}/changelog ${pages})
  if(component MATCHES "^(library|nn|cuda)$")
    file(WRITE ${usr}/share/lintian/overrides/${package}
      "# CPack writes these scripts for each library; the trigger is there too.\n"
      "${package}: maintscript-calls-ldconfig *\n")
  endif()
  file(CHMOD_RECURSE ${usr}/share FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
    DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)
  file(GLOB_RECURSE binaries ${usr}/bin/* ${usr}/lib/*.so.*)
  foreach(binary ${binaries})
    if(NOT IS_SYMLINK ${binary})
      file(RPATH_REMOVE FILE ${binary})
    endif()
  endforeach()
endforeach()
date_all()
