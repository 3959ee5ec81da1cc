// SPDX-License-Identifier: Apache-2.0
/* Status texts and the version. A text is a phrase that can stand after a colon. */
#include "base/base.h"

const char *s24_status_text(s24_status status)
{
    switch (status) {
    case S24_OK:
        return "ok";
    case S24_ERROR_ARGUMENT:
        return "an argument is not valid";
    case S24_ERROR_SHAPE:
        return "shapes do not fit";
    case S24_ERROR_DTYPE:
        return "a dtype that this function does not take";
    case S24_ERROR_NOT_TWO_FOUR:
        return "not 2:4";
    case S24_ERROR_NOT_FINITE:
        return "a value is not finite";
    case S24_ERROR_MEMORY:
        return "out of memory";
    case S24_ERROR_UNSUPPORTED:
        return "not supported here";
    case S24_ERROR_IO:
        return "input or output failed";
    case S24_ERROR_FORMAT:
        return "malformed input";
    case S24_ERROR_EXISTS:
        return "the output exists already";
    case S24_ERROR_INTERRUPTED:
        return "interrupted";
    case S24_ERROR_NUMERIC:
        return "a factorisation failed";
    }
    return "unknown status";
}

const char *s24_version(void)
{
    return S24_VERSION;
}
