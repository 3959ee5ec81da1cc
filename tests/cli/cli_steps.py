# SPDX-License-Identifier: Apache-2.0
"""Steps of a run of training as it takes them, and its end in the midst of them."""
import fcntl
import os
import time

from cli_case import PATIENCE

PAGE = 4096
AHEAD = 20  # steps that a run has taken, at most, when fewer are read: a page has no more lines


class Steps:
    """A pipe for the lines of --metrics that holds a page of them. A run of more steps waits for
    whoever reads, so that it is still there when it is stopped, however late that comes."""

    def __init__(self, path):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        self.reads = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self.reads, fcntl.F_SETPIPE_SZ, PAGE)
        self.taken = 0

    def read(self):
        try:
            self.taken += os.read(self.reads, PAGE // AHEAD).count(b"\n")
        except BlockingIOError:
            pass

    def wait(self, process, count=0, files=()):
        """Until so many are taken and the files are there, or the process has ended."""
        end = time.monotonic() + PATIENCE
        while self.taken < count or not all(file.exists() for file in files):
            if process.poll() is not None or time.monotonic() > end:
                break
            if self.taken < count:
                self.read()
            time.sleep(0.001)

    def close(self):
        """Lets go of what waits: its next line finds nobody."""
        os.close(self.reads)
