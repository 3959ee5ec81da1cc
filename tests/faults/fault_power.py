# SPDX-License-Identifier: Apache-2.0
"""Loss of power: what a run changed (S24_FAULT_LOG of faults.c) is played again onto a tree of its
own, of which only that is sure to be there which was synced. Of a file everything written since its
last sync may be there or not, in any order, the last of it torn at a sector; of a folder the
changes since its last sync are there up to some point."""
import os
import random
import struct

HEAD = struct.Struct("<8q")
CREATE, TRUNCATE, APPEND = os.O_CREAT, os.O_TRUNC, os.O_APPEND
SECTOR = 512


class File:
    """data: a list of (operation, offset, bytes), a truncation's bytes None; syncs: operations."""

    def __init__(self, data=b""):
        self.first, self.writes, self.syncs, self.size = data, [], [], len(data)


class Folder:
    """first: its entries before the run; entries: now."""

    def __init__(self):
        self.first, self.entries, self.syncs = {}, {}, []


class Record:
    """What happened, in order: changes of names, each (operation, folder, name, file or None of
    what goes away), those of one rename under one number."""

    def __init__(self, root, start, log):
        self.root_path, self.root = str(root), Folder()
        for path, data in sorted(start.items()):
            folder, name = self.find(path)
            folder.first[name] = folder.entries[name] = Folder() if data is None else File(data)
        self.names, self.count, self.open, self.written = [], 0, {}, 0
        for record in self.records(log):
            self.count += 1
            self.play(*record)

    @staticmethod
    def records(log):
        raw, at = log.read_bytes(), 0
        while at < len(raw):
            what, process, fd, flags, offset, one, two, count = HEAD.unpack_from(raw, at)
            at += HEAD.size
            path, other = raw[at:at + one].decode(), raw[at + one:at + one + two].decode()
            at += one + two + count
            yield chr(what), (process, fd), flags, offset, path, other, raw[at - count:at]

    def find(self, path, folder=None):
        """(folder, name) of a path; (None, None): outside of the tree."""
        if path.startswith("/"):
            if not (path + "/").startswith(self.root_path + "/"):
                return None, None
            path, folder = path[len(self.root_path) + 1:], None
        folder = folder or self.root
        *above, name = [part for part in path.split("/") if part and part != "."] or [""]
        for part in above:
            folder = folder.entries.get(part)
            if not isinstance(folder, Folder):
                return None, None
        return folder, name

    def change(self, folder, name, thing):
        self.names.append((self.count, folder, name, thing))
        if thing is None:
            folder.entries.pop(name, None)
        else:
            folder.entries[name] = thing

    def play(self, what, fd, flags, offset, path, other, data):
        call = {"o": self.opened, "w": self.wrote, "s": self.synced, "r": self.renamed,
                "x": self.renamed, "u": self.unlinked, "m": self.made, "c": self.closed}[what]
        call(what, fd, flags, offset, path, other, data)

    def opened(self, what, fd, flags, at, path, other, data):
        base = self.open.get((fd[0], at), (None,))[0]
        folder, name = self.find(path, base)
        if folder is None:
            return
        thing = folder.entries.get(name) if name else folder
        if thing is None and flags & CREATE:
            thing = File()
            self.change(folder, name, thing)
        elif flags & TRUNCATE and isinstance(thing, File):
            thing.writes.append((self.count, 0, None))
            thing.size = 0
        if thing is not None:
            self.open[fd] = [thing, thing.size if flags & APPEND else 0]

    def closed(self, what, fd, *rest):
        self.open.pop(fd, None)

    def wrote(self, what, fd, flags, offset, path, other, data):
        if fd not in self.open:
            return
        self.written += 1
        thing, at = self.open[fd]
        if offset < 0:
            offset = at
            self.open[fd][1] += len(data)
        thing.writes.append((self.count, offset, data))
        thing.size = max(thing.size, offset + len(data))

    def synced(self, what, fd, *rest):
        if fd in self.open:
            self.open[fd][0].syncs.append(self.count)

    def renamed(self, what, fd, flags, offset, path, other, data):
        (one, name), (two, new) = self.find(path), self.find(other)
        if one is None or two is None:
            return
        moved, there = one.entries.get(name), two.entries.get(new)
        self.change(two, new, moved)
        self.change(one, name, there if what == "x" else None)

    def unlinked(self, what, fd, flags, offset, path, other, data):
        folder, name = self.find(path, self.open.get(fd, (None,))[0])
        if folder is not None:
            self.change(folder, name, None)

    def made(self, what, fd, flags, offset, path, *rest):
        folder, name = self.find(path)
        if folder is not None:
            self.change(folder, name, Folder())

    # ---- after a loss of power at some operation ----

    def names_there(self, at, chance):
        """The changes of names that are there: all that were synced, and of each folder some."""
        kept, cut = set(), {}
        for number, folder, _, _ in self.names:
            if number > at:
                break
            is_sure = any(number <= sync <= at for sync in folder.syncs)
            if not is_sure and folder not in cut:
                cut[folder] = chance.randint(number - 1, at) if chance else 0
            if is_sure or number <= cut[folder]:
                kept.add(number)
        return kept

    @staticmethod
    def content(thing, at, chance):
        last = max((sync for sync in thing.syncs if sync <= at), default=0)
        data = bytearray(thing.first)
        for number, offset, piece in thing.writes:
            if number > at or (number > last and not (chance and chance.random() < 0.5)):
                continue
            if piece is None:
                data = bytearray()
                continue
            if number > last and chance.random() < 0.3:  # torn
                piece = piece[:chance.randint(0, len(piece) // SECTOR) * SECTOR]
            data += bytes(max(0, offset + len(piece) - len(data)))
            data[offset:offset + len(piece)] = piece
        return bytes(data)

    def after(self, at, chance):
        """The files, as a listing, of a loss of power after that operation; chance None: nothing is
        there that need not be."""
        kept, entries = self.names_there(at, chance), {}
        for number, folder, name, thing in self.names:
            if number in kept:
                entries.setdefault(folder, dict(folder.first))[name] = thing
        found = {}

        def walk(folder, before):
            for name, thing in entries.get(folder, folder.first).items():
                if thing is None:
                    continue
                is_folder = isinstance(thing, Folder)
                found[before + name] = None if is_folder else self.content(thing, at, chance)
                if is_folder:
                    walk(thing, f"{before}{name}/")
        walk(self.root, "")
        return found


def losses(record, count, seed=1):
    """So many trees after a loss of power somewhere in a run, and at its very end with nothing
    there that was not synced."""
    chance = random.Random(seed)
    yield True, record.after(record.count, None)
    for _ in range(count):
        yield False, record.after(chance.randint(0, record.count), chance)
