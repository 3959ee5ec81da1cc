#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian 12 to a running tool of this folder: sets up, fetches its inputs, builds the
# command line, runs tools/NAME.py.
#
#   tools/launch.sh SETUP NAME [OPTION…]     SETUP: the task of tools/setup.sh
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
setup=$1 program="$root/tools/$2.py"
shift 2
case " $* " in
    *" --help "* | *" -h "*)
        command -v python3 >/dev/null || sh "$root/tools/setup.sh" "$setup"
        exec python3 "$program" --help
        ;;
esac
sh "$root/tools/setup.sh" "$setup"
# Inputs first: without a network one wants to know at once, not after the build.
python3 "$program" --prepare "$@"
preset=release targets=sparse24_cli
case " $* " in # a GPU needs its plugin
    *" --device cuda"* | *" --device=cuda"*) preset=cuda targets='sparse24_cli sparse24_cuda' ;;
esac
cmake -S "$root" --preset "$preset" >/dev/null
# Unquoted on purpose: a list of targets.
# shellcheck disable=SC2086
cmake --build "$root/build/$preset" --target $targets
exec python3 "$program" --program "$root/build/$preset/sparse24" "$@"
