# SPDX-License-Identifier: Apache-2.0
"""Processes that train one model together: mpirun, torchrun or SLURM starts them."""
from __future__ import annotations

import os
import threading
import typing

from . import _core
from .matrix import Array


def comm_kinds() -> list[str]:
    """What can carry sums: "none" (a world of one), "mpi" (processes), "nccl" (GPUs)."""
    return _core.names("comm kinds")


class Comm:
    """Meets the other ranks of the world; all make one. A context manager, which ends all ranks
    where one leaves it by an exception:

        with sparse24.Comm("mpi") as comm:      # mpirun -n 2 python3 script.py
            sparse24.train("pruned/", "out/", texts=texts, comm=comm)

    Calls of several threads wait for each other.
    """

    def __init__(self, kind: str = "mpi", *, rank: int = 0, world: int = 0,
                 library: str | os.PathLike | None = None, address: str | None = None,
                 port: int = 0, device: str | None = None, patience: float = 0.0):
        """rank, world: as the launcher says; "mpi" has both of MPI, and refuses a world of another
        size than this one, 0 for any. library: the plugin libsparse24-mpi.so.0, which is not in the
        wheel, or NCCL's, if not where they are looked for. address, port: of "nccl", where rank 0
        waits, by default 127.0.0.1 and 29400. device: this rank's GPU. patience: seconds that a
        rank waits for the others in one call, default 1800.
        Raises ValueError, Error (no plugin, another world), OSError (a rank that does not come)."""
        from .model import open_device  # pylint: disable=import-outside-toplevel,cyclic-import
        self._handle = _core.comm_create(kind, library, rank, world, address, port,
                                         open_device(device), patience)
        self._lock = threading.Lock()
        self.rank: int    #: of this process, from 0
        self.world: int   #: how many there are
        self.rank, self.world = _core.comm_place(self._handle)

    def sum(self, x: Array) -> Array:
        """Replaces x, of f32 or f64, in place by the sums over all ranks, the same bits on each.
        Raises OSError (a rank that is gone), TypeError."""
        with self._lock:
            _core.comm_sum(self._handle, x)
        return x

    def broadcast(self, x: Array, root: int = 0) -> Array:
        """Replaces x, of any dtype, in place by that of rank `root`."""
        with self._lock:
            _core.comm_broadcast(self._handle, x, root)
        return x

    def barrier(self) -> None:
        """Waits until all ranks are here."""
        with self._lock:
            _core.comm_barrier(self._handle)

    def close(self) -> None:
        """Leaves the world; all ranks do, after the same calls."""
        self._handle = None

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind: typing.Any, error: typing.Any, trace: typing.Any) -> None:
        if kind is not None and self._handle is not None:
            import traceback  # pylint: disable=import-outside-toplevel
            if self.world > 1:  # what follows may end this process
                traceback.print_exception(kind, error, trace)
            _core.comm_abort(self._handle, 1)
        self.close()
