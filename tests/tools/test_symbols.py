# SPDX-License-Identifier: Apache-2.0
"""The shared libraries export public names, everything that the headers promise; what a
libsparse24-nn of the same version alone may call says so in its symbols' version; and there is no
mutable global."""
import os
import pathlib
import re
import subprocess
import unittest

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
BUILD = pathlib.Path(os.environ["S24_BUILD"])
LIBRARIES = {"libsparse24.so": ("sparse24.h", "formats.h", "integers.h", "layouts.h", "lifted.h",
                                 "low_rank.h", "masks.h", "notes.h", "device.h"),
             "libsparse24-nn.so": ("nn.h", "checkpoints.h", "language.h", "late.h", "task.h",
                                   "comm.h", "train.h")}
# Names have one of two versions (cmake/sparse24.map); headers of the latter are not installed.
PUBLIC = "SPARSE24_0"
PRIVATE = "SPARSE24_PRIVATE_" + re.search(
    r'S24_VERSION +"([^"]+)"', (SOURCE / "include/sparse24/sparse24.h").read_text()).group(1)
SAME_VERSION = {"libsparse24.so": ("src/device/device_layers.h", "src/device/device_train.h")}
# What the compiler's own start files put into every shared object.
START_FILES = re.compile(r"completed\.\d+|__dso_handle|_DYNAMIC|__TMC_END__")


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *map(str, arguments)], capture_output=True, text=True,
                          check=True, env=dict(os.environ, LC_ALL="C")).stdout


def promised(headers):
    text = "".join((SOURCE / name).read_text() for name in headers)
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^#[^\n]*", "", text, flags=re.S | re.M)
    return set(re.findall(r"S24_API[^;(]*?(\w+)\(", text))


def exported(path):
    """The names that a library shows, by their version."""
    names = {PUBLIC: set(), PRIVATE: set()}
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[4] in ("GLOBAL", "WEAK") and fields[6].isdigit():
            name, _, version = fields[7].replace("@@", "@").partition("@")
            if not name.startswith("SPARSE24_"):
                names[version].add(name)
    return names


def mutable(path):
    sections = {}
    for number, name in re.findall(r"\[\s*(\d+)\] (\S+)", readelf("-S", path)):
        sections[number] = name
    names = []
    for line in readelf("-s", path).splitlines():
        fields = line.split()
        if (len(fields) >= 8 and fields[3] == "OBJECT"
                and sections.get(fields[6]) in (".data", ".bss", ".tdata", ".tbss")
                and not START_FILES.fullmatch(fields[7])):
            names.append(fields[7])
    return names


class Symbols(unittest.TestCase):
    def libraries(self):
        found = [(BUILD / name, headers) for name, headers in LIBRARIES.items()
                 if (BUILD / name).exists()]
        if not found:
            self.skipTest("no shared library in this build")
        return found

    def test_exported(self):
        for path, headers in self.libraries():
            with self.subTest(path.name):
                names = exported(path)
                self.assertEqual(names[PUBLIC],
                                 promised(f"include/sparse24/{name}" for name in headers))
                self.assertEqual(names[PRIVATE], promised(SAME_VERSION.get(path.name, ())))
                self.assertTrue(all(n.startswith("s24_") for of in names.values() for n in of))

    def test_no_mutable_globals(self):
        for path, _ in self.libraries():
            with self.subTest(path.name):
                self.assertEqual(mutable(path), [])


if __name__ == "__main__":
    unittest.main()
