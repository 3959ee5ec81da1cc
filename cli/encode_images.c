// SPDX-License-Identifier: Apache-2.0
/* Embeds images of a folder, piece by piece. */
#include <stdlib.h>

#include "encode.h"
#include "image_files.h"

enum { PIECE = 32 };

typedef struct piece_job {
    const s24_images *images;
    const s24_normalisation *normalisation;
    s24_encoder *encoder;
    float *pixels; /* [PIECE, image] */
    int64_t image;
} piece_job;

static s24_status embed_pieces(cli_app *cli, const piece_job *j, embedded *out)
{
    s24_status status = S24_OK;
    for (int64_t i = 0; i < out->count && status == S24_OK; i += PIECE) {
        const int64_t left = out->count - i, count = left < PIECE ? left : PIECE;
        for (int64_t p = 0; p < count; p++)
            s24_images_write(j->pixels + p * j->image, j->images, i + p, j->normalisation);
        status = s24_encoder_embed_pixels(out->vectors + i * out->width, j->encoder, cli->ctx,
                                          j->pixels, count);
        if (status == S24_OK)
            status = s24_ctx_progress(cli->ctx, "embedding", i + count, out->count);
    }
    return status;
}

static int embed_all(cli_app *cli, s24_encoder *encoder, const s24_images *images,
                     const s24_normalisation *normalisation, embedded *out)
{
    s24_images_info set;
    s24_images_describe(&set, images);
    const int64_t image = set.channels * set.height * set.width;
    out->count = set.count;
    out->width = s24_encoder_width(encoder);
    out->vectors = calloc((size_t)(set.count * out->width) + 1, sizeof *out->vectors);
    float *pixels = calloc(PIECE, (size_t)image * sizeof *pixels);
    const piece_job job = {images, normalisation, encoder, pixels, image};
    const int code = out->vectors && pixels
                         ? cli_status(cli, embed_pieces(cli, &job, out))
                         : cli_fail(cli, CLI_IO, "out of memory for vectors of %lld images",
                                    (long long)set.count);
    free(pixels);
    return code;
}

int encode_images(cli_app *cli, s24_encoder *encoder, const char *path, s24_images **images,
                  embedded *out)
{
    s24_model_info info;
    const s24_image_form form = s24_encoder_image_form(encoder);
    s24_model_describe(&info, s24_encoder_model(encoder));
    const cli_image_model reads = {info.model_type, info.image, info.channels, 0, 1};
    int code = cli_status(cli, s24_images_read_as(images, cli->ctx, path, &form));
    if (code == CLI_OK) code = cli_images_fit(cli, *images, &reads);
    return code == CLI_OK ? embed_all(cli, encoder, *images, &form.normalisation, out) : code;
}
