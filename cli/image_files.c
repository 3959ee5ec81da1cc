// SPDX-License-Identifier: Apache-2.0
/* Reads images, and checks them against the model that is to read them. */
#include "image_files.h"

int cli_images_fit(cli_app *cli, const s24_images *images, const cli_image_model *model)
{
    s24_images_info set;
    s24_images_describe(&set, images);
    if (!model->image || (!model->classes && !model->unlabelled))
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "images need an image model%s, and this one (%s) is none",
                        model->unlabelled ? "" : " with a classifier", model->model_type);
    if (set.channels != model->channels || set.height != model->image || set.width != model->image)
        return cli_fail(
            cli, CLI_FORMAT,
            "images of %lld x %lld pixels and %lld %s, but the model reads %lld x %lld and %lld",
            (long long)set.width, (long long)set.height, (long long)set.channels,
            cli_plural(set.channels, "channel", "channels"), (long long)model->image,
            (long long)model->image, (long long)model->channels);
    if (set.classes > model->classes && !model->unlabelled)
        return cli_fail(cli, CLI_FORMAT, "images of %lld %s, but the model has %lld",
                        (long long)set.classes, cli_plural(set.classes, "class", "classes"),
                        (long long)model->classes);
    return CLI_OK;
}

int cli_images_read(cli_app *cli, s24_images **images, s24_normalisation *normalisation,
                    const char *folder, const char *path)
{
    s24_image_form form;
    s24_status status = s24_image_form_read(&form, cli->ctx, folder);
    if (status == S24_OK) status = s24_images_read_as(images, cli->ctx, path, &form);
    *normalisation = form.normalisation;
    return cli_status(cli, status);
}
