# SPDX-License-Identifier: Apache-2.0
"""Runs a command with one fault in it: the plan that libs24_faults.so (faults.c) maps, a scratch
folder whose outputs are put back before each run, and what the run left."""
import errno
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile

import fault_client

KINDS = ("alloc map open read write sync close rename unlink mkdir stat mode lock thread fork "
         "change").split()
OURS, SMALL, SYSTEM, OTHERS = 1, 2, 4, 8
KILL, SHORT = -1, -2
# What fails how: the errnos of each kind of call.
ERRNOS = {"alloc": [errno.ENOMEM], "map": [errno.ENOMEM], "open": [errno.EMFILE],
          "read": [errno.EIO, errno.EINTR], "write": [errno.ENOSPC, errno.EINTR],
          "sync": [errno.EIO], "close": [errno.EIO], "rename": [errno.EIO], "unlink": [errno.EIO],
          "mkdir": [errno.ENOSPC], "stat": [errno.EACCES], "mode": [errno.EPERM],
          "lock": [errno.ENOLCK], "thread": [errno.EAGAIN], "fork": [errno.EAGAIN]}
PATHS = "LD_LIBRARY_PATH"
ROOM = 256 << 20  # bytes, of which containers often have 64 MiB
LAYOUT = struct.Struct(f"<{8 + len(KINDS)}q256s")
SECONDS = 200  # a run that takes longer hangs
LEFTOVER = re.compile(r"(^|/)\.sparse24-|\.tmp$|\.json\.\d+$")


def base_folder():
    """Where syncing costs nothing, if there is such a place and room in it."""
    memory = "/dev/shm"
    return memory if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM else None


def listing(folder):
    """Every path below a folder with its bytes; None of a folder or a socket."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(place, name)
            here = os.path.relpath(path, folder)
            is_file = os.path.isfile(path)  # and no socket
            found[here] = pathlib.Path(path).read_bytes() if is_file else None
    return found


class Outcome:
    """How a run ended: exit code (negative: a signal, None: it hung), what it printed, the files
    of the folder afterwards, calls of each kind, faults that there were, and a server's answers."""

    def __init__(self, code, out, err, files, counts, hits, where, answers=()):
        self.code, self.out, self.err, self.files = code, out, err, files
        self.counts, self.hits, self.where, self.answers = counts, hits, where, answers


class Place:
    """A scratch folder with a row's inputs; before each run its outputs are those of the start.
    asks: of a client."""

    def __init__(self, fixtures, program, library, start, more, asks=()):
        self.parent = pathlib.Path(tempfile.mkdtemp(dir=base_folder()))
        self.folder = self.parent / "scratch"
        shutil.copytree(fixtures, self.folder, symlinks=True)
        self.program, self.library, self.start, self.more = program, library, start, more
        self.asks, self.answers = asks, []
        self.inputs = listing(self.folder)
        self.plan = self.parent / "plan"

    def close(self):
        shutil.rmtree(self.parent)

    def set_back(self, files=None):
        """Removes what is no input, and puts back what was there at the start, or `files`."""
        for name in sorted(listing(self.folder).keys() - self.inputs.keys(), reverse=True):
            path = self.folder / name
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for name, data in sorted((self.start if files is None else files).items()):
            path = self.folder / name
            path.mkdir(exist_ok=True) if data is None else path.write_bytes(data)

    def remove(self, names):
        """Removes outputs."""
        self.set_back({path: data for path, data in self.made().items()
                       if not any(path == name or path.startswith(name + "/") for name in names)})

    def made(self):
        """What is in the folder that is no input; an input that changed counts, too."""
        return {name: data for name, data in listing(self.folder).items()
                if name not in self.inputs or self.inputs[name] != data}

    def environment(self, more):
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
        env.update(XDG_CACHE_HOME=str(self.folder / "cache"), TMPDIR=str(self.folder / "temporary"))
        return {**env, **self.more, **more}

    def watched(self, log=None):
        # A blank in LD_PRELOAD would end a path.
        folders = ":".join(filter(None, [str(self.library.parent), self.more.get(PATHS)]))
        more = {"LD_PRELOAD": self.library.name, PATHS: folders, "S24_FAULTS": str(self.plan)}
        return {**more, "S24_FAULT_LOG": str(log)} if log else more

    def write_plan(self, kind="alloc", at=0, all_later=False, action=0, who=15, disk=-1):
        self.plan.write_bytes(LAYOUT.pack(KINDS.index(kind), at, all_later, action, who, disk,
                                          *[0] * (2 + len(KINDS)), b""))

    def wait(self, words, env, kill_after, files):
        """(exit code, stdout, stderr); kill_after: seconds until SIGKILL; files: that may be open
        at a time."""
        limit = [] if files is None else ["prlimit", f"--nofile={files}"]
        child = subprocess.Popen([*limit, *map(str, (self.program, *words))], cwd=self.folder,
                                 env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True)
        client = fault_client.Client(self.asks, self.folder / "listens", child)
        try:
            out, err = child.communicate(timeout=kill_after or SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            return -signal.SIGKILL if kill_after else None, out, err
        finally:
            self.answers = client.join()
        return child.returncode, out, err

    def run(self, words, log=None, kill_after=None, plain=False, files=None, **plan):
        """One run; plain: without the library. log: where its changes are written."""
        self.write_plan(**plan)
        more = {} if plain or files else self.watched(log)
        code, out, err = self.wait(words, self.environment(more), kill_after, files)
        numbers = LAYOUT.unpack(self.plan.read_bytes())
        counts = dict(zip(KINDS, numbers[8:8 + len(KINDS)]))
        where = numbers[-1].split(b"\0")[0].decode()
        return Outcome(code, out, err.decode("utf-8", "replace"), self.made(), counts, numbers[7],
                       where, self.answers)
