// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_JSON_NAME_H
#define CLI_JSON_NAME_H

#include <jansson.h>

/* Makes a string of a name of a file, or of a sentence with one: as it is, and where it is no UTF-8
   as people are shown it. NULL: memory ended. */
json_t *cli_json_name(const char *name);

#endif
