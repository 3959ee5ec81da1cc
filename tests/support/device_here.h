// SPDX-License-Identifier: Apache-2.0
/* The GPU that tests run on: by the plugin of this build, or the one that SPARSE24_CUDA_PLUGIN
   names. */
#ifndef S24_TEST_DEVICE_HERE_H
#define S24_TEST_DEVICE_HERE_H

#include "support.h"

#include "sparse24/device.h"

static inline const char *plugin(void)
{
    const char *named = getenv("SPARSE24_CUDA_PLUGIN");
    return named ? named : S24_CUDA_PLUGIN;
}

/* NULL after a line where there is no GPU. */
static inline s24_device *device_here(s24_ctx *ctx)
{
    const s24_device_opts opts = {.size = sizeof opts, .library = plugin()};
    s24_device *device;
    if (s24_device_create(&device, ctx, &opts) == S24_OK) return device;
    print_message("skipped: %s\n", s24_ctx_error(ctx));
    return NULL;
}

#endif
