# SPDX-License-Identifier: Apache-2.0
"""AMX's tiles: --isa amx where the kernel refuses them, as a filter of system calls does here, and
where the machine has none."""
import ctypes
import json
import pathlib
import platform
import struct
import subprocess
import unittest

import cli_case

FLAGS = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\nflags")[2]
HAS_TILES = "amx_tile" in FLAGS.partition("\n")[0].split()


def refuse_tiles():
    """The process and those that it becomes ask arch_prctl(0x1023, 18) in vain, as of a kernel that
    gives nobody tiles."""
    load, equal, end = 0x20, 0x15, 0x06
    number, argument = 0, 16  # offsets in the call's description
    steps = [(load, 0, 0, number), (equal, 0, 3, 158), (load, 0, 0, argument),
             (equal, 0, 1, 0x1023), (end, 0, 0, 0x00050000 | 1), (end, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *s) for s in steps))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, seccomp, filtered = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(seccomp, filtered, program):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


def bench(*more, refused=False):
    done = subprocess.run(
        [cli_case.PROGRAM, "bench", "--threads", "1", "--rounds", "1", "--min-ms", "1", "--json",
         *more], env=cli_case.clean_environment(), capture_output=True, text=True,
        timeout=cli_case.PATIENCE,
        preexec_fn=refuse_tiles if refused else None)
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)["rows"], done.stderr


@unittest.skipUnless(platform.machine() == "x86_64", "--isa amx is of x86-64")
class Tiles(unittest.TestCase):
    def kernels(self, refused):
        rows, said = bench("--shapes", "70,128,96;3,128,33", "--isa", "amx", "--peers", "none",
                           "--dtype", "f32,bf16,i8", refused=refused)
        return [row["kernel"] for row in rows], said

    def test_a_kernel_that_refuses_them(self):
        """Results are compared before they are timed."""
        kernels, said = self.kernels(refused=True)
        self.assertFalse([name for name in kernels if name.endswith("amx")])
        if HAS_TILES:
            self.assertRegex(said, r"--isa amx: the CPU has AMX \w+( int8)?, but 2:4 products need "
                                   r"bf16, int8 and the kernel's permission; up to avx\w+ is used")
        else:
            self.assertIn("--isa amx: this CPU does not have it, or a hypervisor hides it", said)

    def test_a_machine_as_it_is(self):
        kernels, said = self.kernels(refused=False)
        on_tiles = [name for name in kernels if name.endswith("amx")]
        self.assertIn(len(on_tiles), (0, 4))
        self.assertEqual("--isa amx" in said, not on_tiles)


if __name__ == "__main__":
    unittest.main()
