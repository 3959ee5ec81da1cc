# SPDX-License-Identifier: Apache-2.0
"""CMake says in one line what a build leaves out and how to have it; what was asked for and cannot
be is an error."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
CUDA = "Left out: libsparse24-cuda, for NVIDIA's GPUs (--preset cuda or -DS24_CUDA=ON builds it)"


class Configure(unittest.TestCase):
    def configure(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run(["cmake", "-S", SOURCE, "-B", folder, "-DS24_TESTS=OFF",
                                   f"-DCMAKE_C_COMPILER={os.environ['CC']}", *options],
                                  capture_output=True, text=True)

    def left_out(self, *options):
        done = self.configure(*options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [line.removeprefix("-- ") for line in done.stdout.splitlines() if "Left out" in line]

    def test_the_core_alone(self):
        self.assertEqual(self.left_out("-DS24_NN=OFF"), [
            CUDA, "Left out: libsparse24-nn and the program sparse24 (-DS24_NN=ON builds them)"])

    def test_without_what_is_optional(self):
        if not list(pathlib.Path(os.environ["S24_BUILD"]).glob("sparse24-nn.pc")):
            self.skipTest("built without S24_NN")
        without = "-DS24_DENSE=none", "-DCMAKE_DISABLE_FIND_PACKAGE_JPEG=ON"
        self.assertEqual(self.left_out(*without), [
            CUDA,
            "Left out: an engine of dense products, which run in a slow loop instead "
            "(oneDNN or a CBLAS brings it; Debian: libdnnl-dev)",
            "Left out: JPEG images (libjpeg's jpeglib.h brings them; Debian: libjpeg62-turbo-dev)"])

    def test_a_big_endian_machine(self):
        with tempfile.NamedTemporaryFile("w", suffix=".cmake") as after_project:
            after_project.write("set(CMAKE_C_BYTE_ORDER BIG_ENDIAN)\n")
            after_project.flush()
            done = self.configure("-DS24_NN=OFF", f"-DCMAKE_PROJECT_INCLUDE={after_project.name}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("sparse24 runs on little-endian machines alone",
                      " ".join(done.stderr.split()))

    def test_cuda_that_cannot_be(self):
        done = self.configure("-DS24_NN=OFF", "-DS24_CUDA=ON", "-DS24_NVCC=/bin/false",
                              "-DS24_SANITIZE=address")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("S24_CUDA=ON needs gcc for this machine, without sanitizers",
                      " ".join(done.stderr.split()))


if __name__ == "__main__":
    unittest.main()
