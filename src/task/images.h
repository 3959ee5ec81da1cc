// SPDX-License-Identifier: Apache-2.0
/* What the readers of images share. */
#ifndef S24_TASK_IMAGES_H
#define S24_TASK_IMAGES_H

#include "io/file/io.h"
#include "sparse24/task.h"

struct s24_images {
    s24_ctx *ctx;
    s24_images_info info;
    s24_image_form form;
    uint8_t *bytes;  /* [count, channels, height, width] */
    char **files;    /* [count], of folders; else NULL */
    int32_t *labels; /* [count] */
    char **names;    /* [info.classes], of folders; NULL for idx */
};

/* Room for the images that info describes. MEMORY. */
s24_status s24i_images_room(s24_images *images);

/* Of image `index`: the path of its file, or NULL and its pixels in *whole. */
typedef const char *s24i_image_source(const void *from, int64_t index, s24_rgb *whole);
/* Reads all images of a set that has its info, its form and room, by all threads. Errors as
   s24_images_read. */
s24_status s24i_images_fill(s24_images *images, s24i_image_source *source, const void *from);

/* Fill a zeroed set (ctx is set). Errors as s24_images_read. */
s24_status s24i_images_read_folder(s24_images *images, const char *path);
s24_status s24i_images_read_idx(s24_images *images, const char *path);

/* Does the name end in .jpg, .jpeg or .png? */
int s24i_is_image(const char *name);
/* Height and width of a file of an image. FORMAT, UNSUPPORTED. */
s24_status s24i_image_size(int64_t size[2], s24_ctx *ctx, const char *path, const s24i_map *file);
s24_status s24i_image_file_size(int64_t size[2], s24_ctx *ctx, const char *path);
/* Its pixels [3, height, width], of a file of this size. */
s24_status s24i_image_read(uint8_t *pixels, const int64_t size[2], s24_ctx *ctx, const char *path,
                           const s24i_map *file);

/* The same of each format; what is no PNG is taken for JPEG. Pixels have room for a file's own
   size. */
int s24i_is_png(const s24i_map *file);
s24_status s24i_png_size(int64_t size[2], s24_ctx *ctx, const char *path, const s24i_map *file);
s24_status s24i_png_read(uint8_t *pixels, s24_ctx *ctx, const char *path, const s24i_map *file);
s24_status s24i_jpeg_size(int64_t size[2], s24_ctx *ctx, const char *path, const s24i_map *file);
s24_status s24i_jpeg_read(uint8_t *pixels, s24_ctx *ctx, const char *path, const s24i_map *file);

/* Does the form (NULL: none) make squares of its side, of up to 16,384 pixels? ARGUMENT. */
s24_status s24i_image_form_check(s24_ctx *ctx, const s24_image_form *form);
/* to [3, side, side] from an image [3, was] of any size, as the form says, which was checked.
   MEMORY. */
s24_status s24i_image_put(uint8_t *to, s24_ctx *ctx, const s24_image_form *form,
                          const uint8_t *from, const int64_t was[2]);

#endif
