# SPDX-License-Identifier: Apache-2.0
# Libraries, headers, pkg-config and the CMake package.
set(targets sparse24)
if(S24_NN)
  list(APPEND targets sparse24_nn)
endif()
set_target_properties(sparse24 PROPERTIES EXPORT_NAME sparse24)
if(S24_NN)
  set_target_properties(sparse24_nn PROPERTIES EXPORT_NAME nn)
endif()
