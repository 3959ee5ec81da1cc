// SPDX-License-Identifier: Apache-2.0
/*
 * Devices: the plugin is opened and asked for its table, a GPU is opened through it, and its memory
 * handed on. No global remembers a plugin; dlopen counts its users.
 */
#include <dlfcn.h>
#include <string.h>

#include "device/device_room.h"

#define PLUGIN "libsparse24-cuda.so.0"
#define VENDOR "cusparselt"

s24_status s24i_device_status(s24_ctx *ctx, s24_status status, const s24i_device_error *error)
{
    return status == S24_OK ? S24_OK : s24_ctx_fail(ctx, status, "%s", error->text);
}

/* "cuda" is 0, "cuda:12" is 12, anything else −1. */
static int index_of(const char *name)
{
    int index = 0;
    if (strncmp(name, "cuda", 4) != 0) return -1;
    name += 4;
    if (!*name) return 0;
    if (*name++ != ':' || !*name || strlen(name) > 4) return -1;
    for (; *name; name++) {
        if (*name < '0' || *name > '9') return -1;
        index = index * 10 + (*name - '0');
    }
    return index;
}

static s24_status open_plugin(s24_device *device, s24_ctx *ctx, const char *path)
{
    const s24i_device_table *(*table)(void);
    device->library = dlopen(path ? path : PLUGIN, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(ctx, device->library, S24_ERROR_UNSUPPORTED,
            "no GPU here: the plugin cannot be opened (%s); builds with S24_CUDA=ON have it",
            dlerror());
    /* ISO C has no cast from an object pointer to a function's; its bytes are the same here. */
    void *symbol = dlsym(device->library, S24I_DEVICE_SYMBOL);
    memcpy(&table, &symbol, sizeof table);
    REQUIRE(ctx, symbol, S24_ERROR_UNSUPPORTED, "%s is no plugin of sparse24: it has no %s",
            path ? path : PLUGIN, S24I_DEVICE_SYMBOL);
    device->table = table();
    REQUIRE(ctx, device->table->abi == S24I_DEVICE_ABI, S24_ERROR_UNSUPPORTED,
            "the plugin %s has interface %d, this library %d; both must be of one version",
            path ? path : PLUGIN, device->table->abi, S24I_DEVICE_ABI);
    return S24_OK;
}

static s24_status open_device(s24_device *device, s24_ctx *ctx, const s24_device_opts *opts)
{
    s24i_device_error error = {""};
    const char *name = opts->name ? opts->name : "cuda";
    int index = index_of(name);
    REQUIRE(ctx, index >= 0, S24_ERROR_ARGUMENT,
            "there is no kind of device named \"%s\"; expected cuda or cuda:i", name);
    REQUIRE(ctx, !opts->allocator.alloc == !opts->allocator.free, S24_ERROR_ARGUMENT,
            "s24_device_opts.allocator has alloc or free only");
    const char *backend = opts->backend ? opts->backend : "own";
    device->vendor = !strcmp(backend, VENDOR);
    REQUIRE(ctx, device->vendor || !strcmp(backend, "own"), S24_ERROR_ARGUMENT,
            "s24_device_opts.backend is \"%s\"; expected own or " VENDOR, backend);
    TRY(open_plugin(device, ctx, opts->library));
    device->index = index;
    return s24i_device_status(ctx, device->table->open(&device->gpu, index, device->vendor, &error),
                              &error);
}

s24_status s24_device_create(s24_device **out, s24_ctx *ctx, const s24_device_opts *opts)
{
    s24_device_opts known;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_device_opts"));
    s24_device *device = s24i_alloc(&ctx->allocator, sizeof *device);
    REQUIRE(ctx, device, S24_ERROR_MEMORY, "out of memory for a device's handle");
    *device = (s24_device){.allocator = ctx->allocator, .memory = known.allocator};
    GIVE(out, device, s24_device_destroy, open_device(device, ctx, &known));
}

s24_status s24_device_count(int *count, s24_ctx *ctx, const s24_device_opts *opts)
{
    s24i_device_error error = {""};
    s24_device_opts known;
    s24_device device = {.library = NULL};
    if (!count || !ctx) return S24_ERROR_ARGUMENT;
    *count = 0;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_device_opts"));
    s24_status status = open_plugin(&device, ctx, known.library);
    if (status == S24_OK)
        status = s24i_device_status(ctx, device.table->count(count, &error), &error);
    if (device.library) dlclose(device.library);
    return status;
}

void s24_device_destroy(s24_device *device)
{
    if (!device) return;
    s24_allocator allocator = device->allocator;
    s24i_free(&allocator, device->choices);
    s24i_notes_free(device->notes, &allocator);
    if (device->gpu) device->table->close(device->gpu);
    if (device->library) dlclose(device->library);
    s24i_free(&allocator, device);
}

const char *s24_device_text(const s24_device *device)
{
    return device ? device->table->text(device->gpu) : "";
}

/* ---- memory ---------------------------------------------------------------------------------- */

s24_status s24i_device_alloc(void **out, s24_ctx *ctx, s24_device *device, size_t bytes,
                             void *stream, const char *purpose)
{
    s24i_device_error error = {""};
    if (!device->memory.alloc) {
        s24_status status = device->table->alloc(device->gpu, out, bytes, stream, &error);
        if (status == S24_OK) return S24_OK;
        return s24_ctx_fail(ctx, status, "%s: %s", purpose, error.text);
    }
    *out = device->memory.alloc(device->memory.user, bytes, stream);
    REQUIRE(ctx, *out, S24_ERROR_MEMORY, "%s: the allocator has no %zu bytes of device memory",
            purpose, bytes);
    return S24_OK;
}

void s24i_device_release(s24_device *device, void *memory, void *stream)
{
    s24i_device_error error;
    if (!memory) return;
    if (device->memory.free)
        device->memory.free(device->memory.user, memory, stream);
    else
        (void)device->table->release(device->gpu, memory, stream, &error);
}

s24_status s24_device_alloc(void **out, s24_ctx *ctx, s24_device *device, size_t bytes,
                            void *stream)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, device && bytes, S24_ERROR_ARGUMENT, device ? "bytes is 0" : "device is NULL");
    return s24i_device_alloc(out, ctx, device, bytes, stream, "device memory");
}

s24_status s24_device_free(s24_ctx *ctx, s24_device *device, void *memory, void *stream)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device, S24_ERROR_ARGUMENT, "device is NULL");
    s24i_device_release(device, memory, stream);
    return S24_OK;
}

s24_status s24_device_copy(s24_ctx *ctx, s24_device *device, void *to, const void *from,
                           size_t bytes, void *stream)
{
    s24i_device_error error = {""};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && to && from, S24_ERROR_ARGUMENT, "%s is NULL",
            !device ? "device"
            : !to   ? "to"
                    : "from");
    return s24i_device_status(
        ctx, device->table->copy(device->gpu, to, from, bytes, stream, &error), &error);
}

s24_status s24_device_clear(s24_ctx *ctx, s24_device *device, void *memory, size_t bytes,
                            void *stream)
{
    s24i_device_error error = {""};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && memory, S24_ERROR_ARGUMENT, "%s is NULL", device ? "memory" : "device");
    return s24i_device_status(ctx, device->table->clear(device->gpu, memory, bytes, stream, &error),
                              &error);
}

s24_status s24_device_wait(s24_ctx *ctx, s24_device *device, void *stream)
{
    s24i_device_error error = {""};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device, S24_ERROR_ARGUMENT, "device is NULL");
    return s24i_device_status(ctx, device->table->wait(device->gpu, stream, &error), &error);
}
