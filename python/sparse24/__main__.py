# SPDX-License-Identifier: Apache-2.0
"""The command line program: `python3 -m sparse24` and the script `sparse24` are the same."""
import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).parent / "bin" / "sparse24"


def main():
    """Becomes the program, with this process's arguments."""
    os.execv(PROGRAM, ["sparse24", *sys.argv[1:]])


if __name__ == "__main__":
    main()
