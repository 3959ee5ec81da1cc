// SPDX-License-Identifier: Apache-2.0
/* Option structs of callers that were built against another version of the headers. */
#include <string.h>

#include "io/io.h"

s24_status s24i_options_read(s24_ctx *ctx, void *known, size_t bytes, const void *given,
                             const char *name)
{
    size_t size = bytes;
    memset(known, 0, bytes);
    if (given) memcpy(&size, given, sizeof size);
    REQUIRE(ctx, size >= sizeof size, S24_ERROR_ARGUMENT,
            "%s.size is %zu; expected sizeof(%s) = %zu", name, size, name, bytes);
    for (size_t i = bytes; i < size; i++)
        REQUIRE(
            ctx, ((const char *)given)[i] == 0, S24_ERROR_ARGUMENT,
            "%s.size is %zu, newer than this library's %zu, and sets an option it does not know",
            name, size, bytes);
    if (given) memcpy(known, given, size < bytes ? size : bytes);
    memcpy(known, &bytes, sizeof bytes);
    return S24_OK;
}
