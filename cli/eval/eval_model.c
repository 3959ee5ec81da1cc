// SPDX-License-Identifier: Apache-2.0
/* How tasks load the model that they measure. */
#include "eval/eval.h"

int eval_model_opts(cli_app *cli, s24_model_opts *opts, const struct eval_options *o)
{
    const int code = cli_model_opts(cli, opts, o->dtype);
    if (code == CLI_OK && !opts->dtype && cli_on_cpu(cli)) opts->dtype = S24_F32;
    return code;
}
