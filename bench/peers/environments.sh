#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a virtual environment for every engine that sparse24 is compared with, from the pinned
# versions of requirements/, and prints what was installed. One that is there already stays.
#
#   bench/peers/environments.sh DIR [NAME...]
#                                 names: deepsparse llamacpp onnxruntime openvino torch, and for
#                                 servers infinity ort_server
#
# $PYTHON (default: python3.11 where it is, else python3) makes them; DeepSparse wants 3.11 or older.
# llama.cpp is compiled, for what this CPU has but AMX, with which ggml crashes on some machines.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
    sed -n '3,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
dir=$1
shift
python=${PYTHON:-$(command -v python3.11 || command -v python3)}
mkdir -p "$dir"
if [ $# -eq 0 ]; then
    set -- deepsparse llamacpp onnxruntime openvino torch
fi
without_amx="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"
if [ "$(uname -m)" = x86_64 ]; then
    CMAKE_ARGS="$CMAKE_ARGS -DCMAKE_C_FLAGS='$without_amx' -DCMAKE_CXX_FLAGS='$without_amx'"
fi
export CMAKE_ARGS
for name in "$@"; do
    if [ ! -f "$here/requirements/$name.txt" ]; then
        echo "environments: there is no requirements/$name.txt" >&2
        exit 2
    fi
    if [ ! -e "$dir/$name/bin/python" ]; then
        # Under a name of its own until it is whole: an interrupted run leaves none that looks done.
        rm -rf "$dir/$name.part"
        "$python" -m venv "$dir/$name.part"
        "$dir/$name.part/bin/python" -m pip install --quiet -r "$here/requirements/$name.txt"
        mv "$dir/$name.part" "$dir/$name"
    fi
    echo "== $name"
    "$dir/$name/bin/python" -m pip list --format freeze
done
