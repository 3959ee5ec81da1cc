// SPDX-License-Identifier: Apache-2.0
/* What several commands do with a checkpoint: select tensors, declare an output like the input. */

#include "cli.h"

s24_dense cli_tensor_view(const s24_tensor *tensor)
{
    return (s24_dense){.data = (void *)tensor->data,
                       .dtype = tensor->dtype,
                       .rows = tensor->shape[0],
                       .cols = tensor->shape[1]};
}

int cli_selected(cli_app *cli, int64_t *count, const s24_checkpoint *checkpoint,
                 const char *include, const char *exclude)
{
    int64_t tensors = s24_checkpoint_count(checkpoint);
    *count = 0;
    for (int64_t i = 0; i < tensors; i++)
        *count += s24_tensor_is_selected(s24_checkpoint_tensor(checkpoint, i), include, exclude);
    if (*count) return CLI_OK;
    if (include)
        return cli_fail(cli, CLI_USAGE, "--include %s%s%s selects none of the %lld tensors of %s",
                        include, exclude ? " --exclude " : "", exclude ? exclude : "",
                        (long long)tensors, cli->operands[0]);
    return cli_fail(cli, CLI_USAGE,
                    "%s has no linear layer inside numbered blocks; name tensors with --include",
                    cli->operands[0]);
}

int cli_writer(cli_app *cli, s24_writer **out, const s24_checkpoint *checkpoint, const char *path,
               int (*packed)(void *user, const s24_tensor *tensor), void *user)
{
    s24_writer_opts opts = {.size = sizeof opts,
                            .force = cli->common->force,
                            .model = s24_checkpoint_folder(checkpoint) ? checkpoint : NULL};
    s24_status status = s24_writer_create(out, cli->ctx, path, &opts);
    int64_t tensors = s24_checkpoint_count(checkpoint);
    for (int64_t i = 0; i < tensors && status == S24_OK; i++) {
        s24_tensor declared = *s24_checkpoint_tensor(checkpoint, i);
        declared.packed = packed(user, &declared);
        status = s24_writer_declare(*out, &declared);
    }
    return cli_status(cli, status);
}

s24_status cli_pass(s24_writer *writer, const s24_tensor *tensor)
{
    if (tensor->packed)
        return s24_writer_write_packed(writer, tensor->name, tensor->values, tensor->indices);
    return s24_writer_write(writer, tensor->name, tensor->data);
}
