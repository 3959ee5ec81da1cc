# SPDX-License-Identifier: Apache-2.0
"""Reads of an ELF file of 64 bits, little-endian, what the tests of built binaries ask: its kind,
its segments, its dynamic section, its dynamic symbols."""
import os
import pathlib
import struct

EXECUTABLE, SHARED = 2, 3  # e_type
PT_DYNAMIC, PT_INTERP, PT_GNU_STACK, PT_GNU_RELRO = 2, 3, 0x6474E551, 0x6474E552
DT_NEEDED, DT_SONAME, DT_RPATH, DT_BIND_NOW, DT_RUNPATH, DT_FLAGS, DT_FLAGS_1 = (
    1, 14, 15, 24, 29, 30, 0x6FFFFFFB)
DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 0x8, 0x1, 0x08000000
SHT_SYMTAB, SHT_DYNAMIC, SHT_DYNSYM = 2, 6, 11
PF_EXECUTE = 1
STT_FUNC = 2
X86_64 = 62


def is_elf(path):
    """A binary that the loader takes: a program, a shared library, a module; no object file."""
    with open(path, "rb") as file:
        head = file.read(20)
    return head[:6] == b"\x7fELF\x02\x01" and head[16] in (EXECUTABLE, SHARED)


def binaries(folder, without=()):
    """Every binary below folder once, whatever links lead to it; no folder named in without."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in without]
        paths = [pathlib.Path(place, name) for name in names]
        found += [p for p in paths if p.is_file() and not p.is_symlink() and is_elf(p)]
    return sorted(found)


class Elf:
    def __init__(self, path):
        self.bytes = pathlib.Path(path).read_bytes()
        (self.type, self.machine, _, _, segments, sections, _, _, segment_size, segment_count,
         section_size, section_count, _) = struct.unpack_from("<HHIQQQIHHHHHH", self.bytes, 16)
        # A segment: type, flags, offset, address, physical address, bytes in file, bytes in memory.
        self.segments = [struct.unpack_from("<IIQQQQQ", self.bytes, segments + i * segment_size)
                         for i in range(segment_count)]
        # A section: name, type, flags, address, offset, size, link to another.
        self.sections = [struct.unpack_from("<IIQQQQI", self.bytes, sections + i * section_size)
                         for i in range(section_count)]

    def segment(self, kind):
        return next((s for s in self.segments if s[0] == kind), None)

    def text(self, offset):
        return self.bytes[offset:self.bytes.index(b"\0", offset)].decode()

    def section(self, kind):
        """(bytes, offset of its strings) of the first section of that type."""
        found = next((s for s in self.sections if s[1] == kind), None)
        if not found:
            return b"", 0
        return self.bytes[found[4]:found[4] + found[5]], self.sections[found[6]][4]

    def dynamic(self, tag):
        """Every value of that tag."""
        data, _ = self.section(SHT_DYNAMIC)
        return [value for key, value in struct.iter_unpack("<QQ", data) if key == tag]

    def dynamic_texts(self, *tags):
        _, strings = self.section(SHT_DYNAMIC)
        return [self.text(strings + value) for tag in tags for value in self.dynamic(tag)]

    def search_paths(self):
        """The elements of RPATH and RUNPATH."""
        return [element for text in self.dynamic_texts(DT_RPATH, DT_RUNPATH)
                for element in text.split(":")]

    def symbols(self):
        """(name, type, section or 0 where it is undefined, address) of each dynamic symbol."""
        data, strings = self.section(SHT_DYNSYM)
        for name, info, _, section, address, _ in struct.iter_unpack("<IBBHQQ", data):
            if name:
                yield self.text(strings + name), info & 15, section, address

    def at(self, address, count):
        """Bytes of the file that are mapped at that address."""
        for kind, _, offset, start, _, size, _ in self.segments:
            if kind == 1 and start <= address < start + size:
                return self.bytes[offset + address - start:][:count]
        return b""
