# SPDX-License-Identifier: Apache-2.0
# sparse24.cdx.json in the build folder: what of others this build links to, holds or opens when it
# runs, in CycloneDX's JSON (1.5). Nothing in it depends on the day or the place of the build.
set(sbom_components)
set(sbom_references)

# A row: name, version here (may be empty), licence (SPDX's expression, or a name in quotes), how it
# is used (linked, held, opened, or linked to a plugin that is opened), and the file that the loader
# is asked for, without its number.
function(s24_uses name version licence how file)
  set(required required)
  if(how MATCHES "^(opened|plugin)$")
    set(required optional)
  endif()
  set(version_member)
  if(version)
    set(version_member "\"version\": \"${version}\",")
  endif()
  if(licence MATCHES "^\"")
    set(licence "{\"license\": {\"name\": ${licence}}}")
  else()
    set(licence "{\"expression\": \"${licence}\"}")
  endif()
  string(CONFIGURE [[{"type": "library", "bom-ref": "@name@", "name": "@name@", @version_member@
     "scope": "@required@", "licenses": [@licence@],
     "properties": [{"name": "sparse24:how", "value": "@how@"},
                    {"name": "sparse24:file", "value": "@file@"}]}]] component @ONLY)
  list(APPEND sbom_components "${component}")
  list(APPEND sbom_references "\"${name}\"")
  set(sbom_components "${sbom_components}" PARENT_SCOPE)
  set(sbom_references "${sbom_references}" PARENT_SCOPE)
endfunction()

# Writes to `out` what the macros in `words` make in a file that includes these headers, blanks
# apart; what is left of a macro that there is not makes it empty.
function(s24_macros out words)
  set(text)
  foreach(header stdio.h ${ARGN})
    string(APPEND text "#include <${header}>\n")
  endforeach()
  set(file ${PROJECT_BINARY_DIR}/sbom_macros.c)
  file(WRITE ${file} "${text}is ${words}\n")
  set(flags ${UTF8PROC_CFLAGS})
  foreach(folder ${JPEG_INCLUDE_DIRS})
    list(APPEND flags -I${folder})
  endforeach()
  execute_process(COMMAND ${CMAKE_C_COMPILER} ${flags} -E -P ${file}
    OUTPUT_VARIABLE made ERROR_QUIET)
  file(REMOVE ${file})
  string(REGEX MATCH "is ([0-9. ]+)\n*$" found "${made}")
  string(REPLACE " " "" version "${CMAKE_MATCH_1}")
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

s24_macros(version "__GLIBC__.__GLIBC_MINOR__")
s24_uses(glibc "${version}" LGPL-2.1-or-later linked libc.so)
if(TARGET sparse24_cuda)
  s24_uses(cuda-runtime "${CMAKE_CUDA_COMPILER_VERSION}" "\"NVIDIA CUDA Toolkit EULA\"" held "")
  s24_uses(cusparselt "" "\"NVIDIA cuSPARSELt Software License Agreement\"" opened
    libcusparseLt.so)
endif()
if(S24_NN OR TARGET sparse24_cuda)
  s24_uses(cublas "" "\"NVIDIA CUDA Toolkit EULA\"" opened libcublasLt.so)
endif()
if(S24_NN)
  # pkg-config says 2.6.0 of utf8proc 2.8.0.
  s24_macros(version "UTF8PROC_VERSION_MAJOR.UTF8PROC_VERSION_MINOR.UTF8PROC_VERSION_PATCH"
    utf8proc.h)
  s24_uses(utf8proc "${version}" MIT linked libutf8proc.so)
  s24_uses(xxhash "${XXHASH_VERSION}" BSD-2-Clause linked libxxhash.so)
  s24_uses(jansson "${JANSSON_VERSION}" MIT linked libjansson.so)
  if(JPEG_FOUND)
    s24_macros(version LIBJPEG_TURBO_VERSION jpeglib.h)
    if(version)
      s24_uses(libjpeg-turbo "${version}" "IJG AND BSD-3-Clause AND Zlib" linked libjpeg.so)
    else()
      s24_uses(libjpeg "${JPEG_VERSION}" IJG linked libjpeg.so)
    endif()
  endif()
  if(MICROHTTPD_FOUND)
    s24_uses(libmicrohttpd "${MICROHTTPD_VERSION}" LGPL-2.1-or-later opened libmicrohttpd.so)
  endif()
  if(YAML_FOUND)
    s24_uses(libyaml "${YAML_VERSION}" MIT linked libyaml-0.so)
  endif()
  if(engine STREQUAL onednn)
    s24_uses(onednn "" Apache-2.0 opened libdnnl.so)
  elseif(engine STREQUAL cblas)
    get_filename_component(cblas_file ${CBLAS_LIBRARY} NAME_WE)
    s24_uses(cblas "" "\"as ${cblas_file} says\"" linked ${cblas_file}.so)
  endif()
  if(TARGET sparse24_mpi)
    s24_uses(mpi "" "\"as the MPI that is linked says\"" plugin libmpi.so)
  endif()
  s24_uses(nccl "" BSD-3-Clause opened libnccl.so)
  # What bench compares with and measures by, where it is.
  s24_uses(cuda-driver "" "\"NVIDIA Driver License Agreement\"" opened libcuda.so)
  s24_uses(nvml "" "\"NVIDIA Driver License Agreement\"" opened libnvidia-ml.so)
  s24_uses(libxsmm "" BSD-3-Clause opened libxsmm.so)
  s24_uses(openblas "" BSD-3-Clause opened libopenblas.so)
endif()

list(JOIN sbom_components ",\n    " sbom_components)
list(JOIN sbom_references ", " sbom_references)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/sparse24.cdx.json @ONLY CONTENT [[{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "version": 1,
  "metadata": {
    "component": {"type": "application", "bom-ref": "sparse24", "name": "sparse24",
                  "version": "@PROJECT_VERSION@", "licenses": [{"expression": "Apache-2.0"}]}
  },
  "components": [
    @sbom_components@
  ],
  "dependencies": [
    {"ref": "sparse24", "dependsOn": [@sbom_references@]}
  ]
}
]])
# The licence goes with every copy, and this list; of a .deb Debian has the licence's text.
install(FILES LICENSE ${PROJECT_BINARY_DIR}/sparse24.cdx.json DESTINATION ${CMAKE_INSTALL_DOCDIR}
  COMPONENT legal)
