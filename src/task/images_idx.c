// SPDX-License-Identifier: Apache-2.0
/*
 * idx files, as MNIST comes: two zeros, a type (8: bytes), the number of dimensions, each as 32
 * bits, the high byte first, then the bytes.
 */
#include "task/images.h"

#include <string.h>

typedef struct idx {
    s24i_map map;
    int64_t sizes[3];
    const uint8_t *data;
} idx;

static s24_status parse(idx *f, s24_ctx *ctx, const char *path, int rank)
{
    const uint8_t *p = f->map.data;
    const size_t head = 4 + 4 * (size_t)rank;
    REQUIRE(ctx, f->map.bytes < 2 || p[0] != 0x1f || p[1] != 0x8b, S24_ERROR_FORMAT,
            "%s is packed by gzip; unpack it first", path);
    REQUIRE(
        ctx, f->map.bytes >= head && p[0] == 0 && p[1] == 0 && p[2] == 8 && p[3] == (uint8_t)rank,
        S24_ERROR_FORMAT, "%s: an idx file of bytes with %d dimensions is expected", path, rank);
    uint64_t bytes = 1;
    for (int i = 0; i < rank; i++) {
        const uint8_t *size = p + 4 + 4 * i;
        f->sizes[i] = (int64_t)size[0] << 24 | size[1] << 16 | size[2] << 8 | size[3];
        if (__builtin_mul_overflow(bytes, (uint64_t)f->sizes[i], &bytes)) bytes = UINT64_MAX;
    }
    REQUIRE(ctx, bytes > 0 && bytes == f->map.bytes - head, S24_ERROR_FORMAT,
            "%s: its head promises %llu bytes, and %zu are there", path, (unsigned long long)bytes,
            f->map.bytes - head);
    f->data = p + head;
    return S24_OK;
}

static s24_status fill(s24_images *images, const char *path, const char *labels_path,
                       const idx *pixels, const idx *labels)
{
    int32_t largest = 0;
    REQUIRE(images->ctx, pixels->sizes[0] == labels->sizes[0], S24_ERROR_FORMAT,
            "%s has %lld labels for the %lld images of %s", labels_path,
            (long long)labels->sizes[0], (long long)pixels->sizes[0], path);
    images->info = (s24_images_info){pixels->sizes[0], 1, pixels->sizes[1], pixels->sizes[2], 0};
    TRY(s24i_images_room(images));
    const int64_t area = images->info.height * images->info.width;
    memcpy(images->bytes, pixels->data, (size_t)(images->info.count * area));
    for (int64_t i = 0; i < images->info.count; i++) {
        images->labels[i] = labels->data[i];
        if (images->labels[i] > largest) largest = images->labels[i];
    }
    images->info.classes = largest + 1;
    return S24_OK;
}

static s24_status read_both(s24_images *images, const char *path, const char *labels_path)
{
    idx pixels = {0}, labels = {0};
    s24_status status = s24i_map_open(&pixels.map, images->ctx, path);
    if (status == S24_OK) status = parse(&pixels, images->ctx, path, 3);
    if (status == S24_OK) status = s24i_map_open(&labels.map, images->ctx, labels_path);
    if (status == S24_OK) status = parse(&labels, images->ctx, labels_path, 1);
    if (status == S24_OK) status = fill(images, path, labels_path, &pixels, &labels);
    if (pixels.map.data) s24i_map_close(&pixels.map);
    if (labels.map.data) s24i_map_close(&labels.map);
    return status;
}

s24_status s24i_images_read_idx(s24_images *images, const char *path)
{
    static const char from[] = "images-idx3", to[] = "labels-idx1"; /* of one length */
    const char *name = s24i_base_name(path), *found = strstr(name, from);
    char *labels_path;
    REQUIRE(images->ctx, found, S24_ERROR_FORMAT,
            "%s: a folder of class folders is expected, or an idx file with \"%s\" in its name",
            path, from);
    TRY(s24i_copy_string(&labels_path, images->ctx, path));
    memcpy(labels_path + (found - path), to, sizeof to - 1);
    const s24_status status = read_both(images, path, labels_path);
    s24_ctx_free(images->ctx, labels_path);
    return status;
}
