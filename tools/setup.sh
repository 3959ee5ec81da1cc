#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs from Debian's packages what a task of this tree needs and the machine does not have yet.
# When nothing is missing it touches neither the network nor apt-get.
#
#   tools/setup.sh build             compiler, CMake, the libraries, Python for the tests
#   tools/setup.sh demo              the same and mandoc
#   tools/setup.sh checks            the same, clang and clang-format (for .ci/run)
#   tools/setup.sh browser           Chromium, for the test of serve's page
#   tools/setup.sh neon              the build's, a cross compiler and an emulator of 64-bit ARM
#   tools/setup.sh install NAME…     the named packages
#   tools/setup.sh update            the package lists, for apt-get download
set -eu

# A row: the package, and what shows that it is not needed: a command, or a file.
build_rows='
gcc gcc
libc6-dev /usr/include/stdio.h
cmake cmake
ninja-build ninja
pkg-config pkg-config
libjansson-dev /usr/include/jansson.h
libutf8proc-dev /usr/include/utf8proc.h
libxxhash-dev /usr/include/xxhash.h
libdnnl-dev /usr/include/dnnl.h
libmicrohttpd-dev /usr/include/microhttpd.h
libyaml-dev /usr/include/yaml.h
libopenmpi-dev mpicc
openmpi-bin mpirun
libjpeg62-turbo-dev /usr/include/jpeglib.h
libcmocka-dev /usr/include/cmocka.h
python3 python3
'
demo_rows="$build_rows
mandoc mandoc
"
checks_rows="$build_rows
mandoc mandoc
git git
dpkg-dev dpkg-shlibdeps
file file
clang clang
clang-format clang-format
xz-utils xz
libomp-dev /usr/lib/llvm-14/lib/libomp.so
"
# The last one is of another architecture, which dpkg must be told of.
neon_rows="$build_rows
gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdio.h
qemu-user qemu-aarch64
libcmocka-dev:arm64 /usr/lib/aarch64-linux-gnu/pkgconfig/cmocka.pc
"

browser_rows='
chromium chromium
'

is_here() {
    case $1 in
        /*) test -e "$1" ;;
        *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# Prints the packages of the rows on stdin that are missing.
missing() {
    while read -r package probe; do
        if [ -n "$package" ] && ! is_here "$probe"; then
            printf ' %s' "$package"
        fi
    done
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        echo "setup: this needs root: run it as root, or install sudo. The command was: $*" >&2
        exit 1
    fi
}

apt() {
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "setup: there is no apt-get here; please provide what stands above by other means" >&2
        exit 1
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 "$@"
}

install_packages() {
    [ $# -gt 0 ] || return 0
    echo "setup: installing Debian packages: $*"
    apt update
    if ! apt install -y --no-install-recommends "$@"; then
        echo "setup: apt-get could not install: $* (no network, or no package source has them)" >&2
        exit 1
    fi
}

# As install_packages, for lists with packages of arm64; dpkg forgets the architecture again where
# no package source has it.
install_foreign() {
    [ $# -gt 0 ] || return 0
    if dpkg --print-foreign-architectures | grep -qx arm64; then
        install_packages "$@"
        return
    fi
    as_root dpkg --add-architecture arm64
    if ! (install_packages "$@"); then
        as_root dpkg --remove-architecture arm64
        exit 1
    fi
}

# Unquoted on purpose: a list of package names.
# shellcheck disable=SC2046
case ${1:-} in
    build) install_packages $(printf '%s' "$build_rows" | missing) ;;
    demo) install_packages $(printf '%s' "$demo_rows" | missing) ;;
    checks) install_packages $(printf '%s' "$checks_rows" | missing) ;;
    browser) install_packages $(printf '%s' "$browser_rows" | missing) ;;
    neon) install_foreign $(printf '%s' "$neon_rows" | missing) ;;
    install) shift && install_packages "$@" ;;
    update) apt update ;;
    *)
        echo "usage: tools/setup.sh build | demo | checks | browser | neon | update" >&2
        echo "       tools/setup.sh install NAME…" >&2
        exit 2
        ;;
esac
