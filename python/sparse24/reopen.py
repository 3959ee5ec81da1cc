# SPDX-License-Identifier: Apache-2.0
"""How what is opened from a folder goes to another process."""
from __future__ import annotations

import typing


class Reopens:
    """What it holds is not pickled: where it is unpickled, or copied, the same call opens the
    folder again, which has to be there."""
    _opened: tuple[typing.Any, dict[str, typing.Any]]

    def _keep_call(self, arguments: dict[str, typing.Any]) -> None:
        """The locals of a constructor as it begins; callbacks are left out."""
        options = {name: value for name, value in arguments.items()
                   if name not in ("self", "folder", "progress") and not name.startswith("_")}
        self._opened = (arguments["folder"], options)

    def __reduce__(self):
        return _reopen, (type(self), *self._opened)


def _reopen(kind, folder, options):
    return kind(folder, **options)
