// SPDX-License-Identifier: Apache-2.0
/* What was measured on a device, kept with it: a list of keys and values, some dozens at most. */
#include <string.h>

#include "op/device.h"

struct s24i_device_note {
    s24i_device_note *next;
    char key[96], value[32];
};

static s24i_device_note *find(const s24_device *device, const char *key)
{
    s24i_device_note *note = device->notes;
    while (note && strcmp(note->key, key) != 0)
        note = note->next;
    return note;
}

s24_status s24_device_note(s24_ctx *ctx, s24_device *device, const char *key, const char *value)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && key && value, S24_ERROR_ARGUMENT, "%s is NULL",
            !device ? "device"
            : key   ? "value"
                    : "key");
    s24i_device_note *note = find(device, key);
    REQUIRE(ctx, strlen(key) < sizeof note->key && strlen(value) < sizeof note->value,
            S24_ERROR_ARGUMENT, "a note of %zu and %zu bytes; expected less than %zu and %zu",
            strlen(key), strlen(value), sizeof note->key, sizeof note->value);
    if (!note) {
        note = s24i_alloc(&device->allocator, sizeof *note);
        REQUIRE(ctx, note, S24_ERROR_MEMORY, "out of memory for a device's note");
        memcpy(note->key, key, strlen(key) + 1);
        note->next = device->notes;
        device->notes = note;
    }
    memcpy(note->value, value, strlen(value) + 1);
    return S24_OK;
}

const char *s24_device_noted(const s24_device *device, const char *key)
{
    const s24i_device_note *note = device && key ? find(device, key) : NULL;
    return note ? note->value : NULL;
}

const char *s24_device_note_key(const s24_device *device, int64_t index)
{
    const s24i_device_note *note = device && index >= 0 ? device->notes : NULL;
    while (note && index-- > 0)
        note = note->next;
    return note ? note->key : NULL;
}

void s24i_device_notes_free(s24_device *device)
{
    while (device->notes) {
        s24i_device_note *next = device->notes->next;
        s24i_free(&device->allocator, device->notes);
        device->notes = next;
    }
}
