# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a fresh prefix and builds examples/ against it, through pkg-config and
through find_package."""
import os
import pathlib
import re
import shutil
import subprocess
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
BUILD = pathlib.Path(os.environ["S24_BUILD"])
WORK = BUILD / "install-test"
PREFIX = WORK / "prefix"


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        PREFIX.mkdir(parents=True)
        cls.install = run("cmake", "--install", BUILD, "--prefix", PREFIX)

    def check(self, result, code=0):
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def environment(self):
        pc = next(PREFIX.rglob("sparse24.pc")).parent
        return dict(os.environ, PKG_CONFIG_PATH=str(pc), LD_LIBRARY_PATH=str(pc.parent))

    def programs_work(self, folder):
        result = self.check(run(folder / "first", env=self.environment()))
        self.assertRegex(result.stdout, r"524288 bytes dense, 278528 packed; largest difference \d")
        result = self.check(run(folder / "strict", env=self.environment()), code=1)
        self.assertRegex(result.stderr, r"^strict: .*row 1\b.*\b4\b", "row and column are named")

    def test_installs(self):
        self.check(self.install)
        self.assertTrue((PREFIX / "include/sparse24/sparse24.h").exists())
        for private in ("base.h", "device_layers.h", "device_train.h"):
            self.assertFalse(list(PREFIX.rglob(private)), "private headers stay at home")

    def test_pkg_config(self):
        flags = self.check(run("pkg-config", "--cflags", "--libs", "sparse24",
                               env=self.environment())).stdout.split()
        for name in ("first", "strict"):
            self.check(run(os.environ["CC"], "-std=c11", "-Wall", "-Wextra", "-Werror",
                           SOURCE / f"examples/{name}.c", *flags, "-lm", "-o", WORK / name))
        self.programs_work(WORK)

    def test_find_package(self):
        build = WORK / "examples"
        self.check(run("cmake", "-S", SOURCE / "examples", "-B", build,
                       f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DCMAKE_C_COMPILER={os.environ['CC']}"))
        self.check(run("cmake", "--build", build))
        self.programs_work(build)

    def test_moved_prefix(self):
        moved = WORK / "moved"
        shutil.copytree(PREFIX, moved, symlinks=True)
        pc = next(moved.rglob("sparse24.pc")).parent
        flags = self.check(run("pkg-config", "--cflags", "sparse24",
                               env=dict(os.environ, PKG_CONFIG_PATH=str(pc)))).stdout
        self.assertIn("moved", flags)

    def test_nn_package(self):
        if not list(PREFIX.rglob("nn.h")):
            self.skipTest("built without S24_NN")
        flags = self.check(run("pkg-config", "--libs", "sparse24-nn",
                               env=self.environment())).stdout
        self.assertIn("-lsparse24-nn", flags)
        self.assertIn("-lsparse24 ", flags + " ")
        program = WORK / "nn.c"
        program.write_text("#include <sparse24/nn.h>\n#include <stdio.h>\n"
                           "int main(void) { puts(s24_dense_engine()); return 0; }\n")
        flags = self.check(run("pkg-config", "--cflags", "--libs", "sparse24-nn",
                               env=self.environment())).stdout.split()
        self.check(run(os.environ["CC"], program, *flags, "-o", WORK / "nn"))
        self.assertTrue(self.check(run(WORK / "nn", env=self.environment())).stdout.strip())

    def test_nn_without_the_headers_of_what_it_is_made_of(self):
        """Only our own .pc files are there; what libsparse24-nn needs is named for static links."""
        if not list(PREFIX.rglob("nn.h")):
            self.skipTest("built without S24_NN")
        alone = dict(self.environment(), PKG_CONFIG_PATH="",
                     PKG_CONFIG_LIBDIR=self.environment()["PKG_CONFIG_PATH"])
        flags = self.check(run("pkg-config", "--cflags", "--libs", "sparse24-nn",
                               env=alone)).stdout.split()
        self.assertEqual({flag for flag in flags if flag.startswith("-l")},
                         {"-lsparse24-nn", "-lsparse24"})
        static = self.check(run("pkg-config", "--static", "--libs", "sparse24-nn",
                                env=alone)).stdout.split()
        for flag in ("-lsparse24-nn", "-lsparse24", "-lutf8proc", "-lxxhash", "-lm"):
            self.assertIn(flag, static)

    def test_command_line(self):
        program = PREFIX / "bin/sparse24"
        if not program.exists():
            self.skipTest("built without the command line")
        version = re.search(r'S24_VERSION +"(.*)"',
                            (SOURCE / "include/sparse24/sparse24.h").read_text()).group(1)
        self.assertIn(version, self.check(run(program, "--version")).stdout)

    def test_completions_lie_where_shells_look(self):
        if not (PREFIX / "bin/sparse24").exists():
            self.skipTest("built without the command line")
        for place in ("bash-completion/completions/sparse24", "zsh/*/_sparse24",
                      "fish/vendor_completions.d/sparse24.fish"):
            self.assertEqual(len(list((PREFIX / "share").glob(place))), 1, place)


if __name__ == "__main__":
    unittest.main()
