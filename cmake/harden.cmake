# SPDX-License-Identifier: Apache-2.0
# s24_harden: what compiler and linker offer against mistakes that are used for attacks. Each flag
# is taken where the compiler knows it; S24_HARDEN=OFF leaves all of them out.
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

add_library(s24_harden INTERFACE)
if(NOT S24_HARDEN)
  return()
endif()

# Programs are position-independent too, so that they lie at another address each time.
check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Canaries; branches land where branches may (CET on x86, BTI and PAC on ARM).
set(CMAKE_REQUIRED_FLAGS -Werror) # clang only warns of what is another architecture's
foreach(flag -fstack-protector-strong -fcf-protection=full -mbranch-protection=standard)
  string(MAKE_C_IDENTIFIER "S24_HAS${flag}" has)
  check_c_compiler_flag(${flag} ${has})
  if(${has})
    target_compile_options(s24_harden INTERFACE $<$<COMPILE_LANGUAGE:C>:${flag}>
      $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${flag}>) # of what nvcc leaves to the host's compiler
  endif()
endforeach()

# Checked string functions need an optimising compiler, and hide from sanitizers what they look for.
if(NOT S24_SANITIZE)
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror")
  set(CMAKE_REQUIRED_DEFINITIONS -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  check_c_source_compiles("#include <string.h>\nint main(void) { return 0; }" S24_HAS_FORTIFY_3)
  unset(CMAKE_REQUIRED_DEFINITIONS)
  target_compile_options(s24_harden INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:C>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:-U_FORTIFY_SOURCE$<SEMICOLON>-D_FORTIFY_SOURCE=$<IF:$<BOOL:${S24_HAS_FORTIFY_3}>,3,2>>)
endif()
unset(CMAKE_REQUIRED_FLAGS)

# Every symbol is bound at start, then the tables of addresses are read-only; no stack runs as code.
foreach(flag relro now noexecstack)
  check_linker_flag(C "LINKER:-z,${flag}" S24_HAS_Z_${flag})
  if(S24_HAS_Z_${flag})
    target_link_options(s24_harden INTERFACE "LINKER:-z,${flag}")
  endif()
endforeach()
