# SPDX-License-Identifier: Apache-2.0
# sparse24.cdx.json in the build folder: what of others this build links to, holds or opens when it
# runs, in CycloneDX's JSON (1.5). Nothing in it depends on the day or the place of the build.
set(sbom_components)
set(sbom_references)

# A row: name, version here (may be empty), licence (SPDX's expression, or a name in quotes), how it
# is used (linked, held, opened), and the file that the loader is asked for, without its number.
function(s24_uses name version licence how file)
  set(required required)
  if(how STREQUAL opened)
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

s24_uses(glibc "" LGPL-2.1-or-later linked libc.so)
if(TARGET sparse24_cuda)
  s24_uses(cuda-runtime "${CMAKE_CUDA_COMPILER_VERSION}" "\"NVIDIA CUDA Toolkit EULA\"" held "")
  s24_uses(cublas "" "\"NVIDIA CUDA Toolkit EULA\"" opened libcublasLt.so)
endif()
if(S24_NN)
  s24_uses(utf8proc "${UTF8PROC_VERSION}" MIT linked libutf8proc.so)
  s24_uses(xxhash "${XXHASH_VERSION}" BSD-2-Clause linked libxxhash.so)
  s24_uses(jansson "${JANSSON_VERSION}" MIT linked libjansson.so)
  if(JPEG_FOUND)
    s24_uses(libjpeg "${JPEG_VERSION}" "IJG AND BSD-3-Clause AND Zlib" linked libjpeg.so)
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
