// SPDX-License-Identifier: Apache-2.0
/* What was measured on a device, kept with it. */
#include "device/device_room.h"

s24_status s24_device_note(s24_ctx *ctx, s24_device *device, const char *key, const char *value)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && key && value, S24_ERROR_ARGUMENT, "%s is NULL",
            !device ? "device"
            : key   ? "value"
                    : "key");
    return s24i_note_set(ctx, &device->notes, &device->allocator, "device", key, value);
}

const char *s24_device_noted(const s24_device *device, const char *key)
{
    return device && key ? s24i_noted(device->notes, key) : NULL;
}

const char *s24_device_note_key(const s24_device *device, int64_t index)
{
    return device ? s24i_note_key(device->notes, index) : NULL;
}
