// SPDX-License-Identifier: Apache-2.0
/* Images and the model that is to read them. */
#include "images.h"

int cli_images_fit(cli_app *cli, const s24_images *images, const s24_transformer_info *info)
{
    s24_images_info set;
    s24_images_describe(&set, images);
    if (info->head != S24_HEAD_CLASSES)
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "images need an image model with a classifier, and this one (%s) is none",
                        info->model_type);
    if (set.channels != info->channels || set.height != info->image || set.width != info->image)
        return cli_fail(
            cli, CLI_FORMAT,
            "images of %lld x %lld pixels and %lld channels, but the model reads %lld x "
            "%lld and %lld",
            (long long)set.width, (long long)set.height, (long long)set.channels,
            (long long)info->image, (long long)info->image, (long long)info->channels);
    if (set.classes > info->classes)
        return cli_fail(cli, CLI_FORMAT, "images of %lld classes, but the model has %lld",
                        (long long)set.classes, (long long)info->classes);
    return CLI_OK;
}
