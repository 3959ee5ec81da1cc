# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of 2:4 tensors, with this package's in the place of PyTorch's:

    python3 python/tests/run_theirs.py test_sparse_semi_structured.py [--device cuda]

The file is test/test_sparse_semi_structured.py of PyTorch, which is not part of this tree. Names of
torch.sparse that it imports are taken from sparse24.torch.compat, where they are; on the CPU what
it asks of a GPU is asked of the CPU. Prints a line for each test, and for one that fails what this
package does otherwise on purpose, if that is known; ends with 1 if another fails."""
import argparse
import importlib.util
import re
import sys
import types
import unittest

import torch
from sparse24.torch import compat

MODULE = "sparse24_as_torch"
#: What fails and why: a test's name, its failure.
KNOWN = (
    ("mm_sparse_(first_T|second_NN)", "AssertionError", "such a product is computed here"),
    ("mm_sparse_first_N.*int8", "not raised", "such a product is computed here"),
    ("mm_sparse_(first_T|second_NN)", "shapes cannot be multiplied",
     "such a product is computed here, and the test's shapes do not fit"),
    ("matmuls_(mat_vec|bmm)", "AssertionError", "such a product is computed here"),
    ("matmuls_(mat_vec|bmm)", "is not 2:4", "what is not 2:4 is refused here"),
    ("unsupported_shape", "not raised", "each multiple of 4 columns is taken"),
    ("unsupported_dtype", "float32", "f32 is taken on the CPU, and there alone"),
    ("", r"original_tensor.dtype torch\.(int8|float8)", "the CPU's tensors are f32, f16, bf16"),
    ("", r"_cslt|_sparse_semi_structured|_semi_structured_|Could not run",
     "the test calls PyTorch's private operators, not the tensors"),
    ("compile", "", "the test reads what Inductor makes of PyTorch's operator"),
)


def module() -> types.ModuleType:
    """torch.sparse's names, ours where we have them."""
    made = types.ModuleType(MODULE)
    from torch.sparse import semi_structured  # pylint: disable=import-outside-toplevel
    for source in (torch.sparse, semi_structured, compat):
        for name, value in vars(source).items():
            if not name.startswith("__"):
                setattr(made, name, value)
    # As PyTorch 2.1 and 2.2 had the list.
    made._DTYPE_TO_SEMI_STRUCTURED_SPARSE_CONFIG = \
        compat.SparseSemiStructuredTensor._DTYPE_SHAPE_CONSTRAINTS
    return made


def rewritten(text: str, device: str) -> str:
    """The file with its imports changed, and for the CPU where it names a GPU."""
    text = re.sub(r"from torch\.sparse(\.semi_structured)? import", f"from {MODULE} import", text)
    text = re.sub(r"(?<!class )\bSparseSemiStructuredTensor\(", "to_sparse_semi_structured(", text)
    # Its tests of training, and those of CUTLASS, are for one kind of GPU, and without one it has
    # no classes to test; here there are, always.
    text = re.sub(r"^( *)_IS_SM8X = .*$", r"\1_IS_SM8X = True", text, flags=re.MULTILINE)
    text = re.sub(r"^(SEMI_STRUCTURED_SUPPORTED_BACKENDS) = dict\(\)$",
                  r"\1 = {'cutlass': SparseSemiStructuredTensorCUTLASS, "
                  r"'cusparselt': SparseSemiStructuredTensorCUSPARSELT}", text, flags=re.MULTILINE)
    if device == "cpu":
        text = re.sub(r"(device|only_for)=([\"'])cuda\2", r"\1='cpu'", text)
        text = re.sub(r"\.cuda\(\)", ".cpu()", text)
    return f"from {MODULE} import to_sparse_semi_structured\n{text}"


def pytest() -> types.ModuleType:
    """What the file asks of pytest, where that is not installed."""
    made = types.ModuleType("pytest")
    made.raises = unittest.TestCase().assertRaises
    return made


def reason(name: str, failure: str) -> str | None:
    """Why a test fails, if this is meant."""
    for test, message, why in KNOWN:
        if re.search(test, name) and re.search(message, failure):
            return why
    return None


class Result(unittest.TestResult):
    """Prints each test as it ends."""
    passed = unknown = explained = 0

    def addSuccess(self, test):
        self.passed += 1
        print(f"ok        {test.id()}")

    def addSkip(self, test, reason):  # pylint: disable=redefined-outer-name
        super().addSkip(test, reason)
        print(f"skipped   {test.id()}: {reason}")

    def _failed(self, test, error):
        message = f"{error[0].__name__}: {error[1]}"
        why = reason(test.id(), message)
        self.explained += why is not None
        self.unknown += why is None
        first = message.strip().splitlines()[0]
        said = f"otherwise {test.id()}: {why} [{first}]" if why else ""
        print(said or f"FAILED    {test.id()}: {first}")

    def addFailure(self, test, err):
        self._failed(test, err)

    def addError(self, test, err):
        self._failed(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._failed(subtest, err)


def run(path: str, device: str) -> Result:
    """All tests of a file."""
    with open(path, encoding="utf-8") as file:
        text = rewritten(file.read(), device)
    sys.modules[MODULE] = module()
    if importlib.util.find_spec("pytest") is None:
        sys.modules["pytest"] = pytest()
    theirs = types.ModuleType("theirs")
    theirs.__file__ = path
    sys.modules["theirs"] = theirs
    exec(compile(text, path, "exec"), vars(theirs))  # pylint: disable=exec-used
    result = Result()
    unittest.defaultTestLoader.loadTestsFromModule(theirs).run(result)
    print(f"{result.passed} passed, {result.unknown} failed, {len(result.skipped)} skipped, "
          f"{result.explained} otherwise on purpose")
    return result


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("file", help="PyTorch's test/test_sparse_semi_structured.py")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = parser.parse_args()
    return int(run(options.file, options.device).unknown > 0)


if __name__ == "__main__":
    sys.exit(main())
