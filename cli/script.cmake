# SPDX-License-Identifier: Apache-2.0
# Writes the text of SCRIPT as an array of C, NAME, ended by a zero, to OUTPUT.
file(READ ${SCRIPT} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REPLACE "0x0a," "0x0a,\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "extern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
