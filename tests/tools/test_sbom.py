# SPDX-License-Identifier: Apache-2.0
"""sparse24.cdx.json of the build folder has the members that CycloneDX 1.5 wants, and names every
library that what was built asks the loader for, or opens."""
import json
import os
import pathlib
import re
import unittest

import elf

SOURCE = pathlib.Path(os.environ["S24_SOURCE"])
BUILD = pathlib.Path(os.environ["S24_BUILD"])
BOM = json.loads((BUILD / "sparse24.cdx.json").read_text())
# Parts of glibc, of the compiler and its sanitizers, and ours.
OWN = re.compile(r"(libm|libc|libdl|libpthread|ld-linux-.*|libgcc_s|libstdc\+\+|lib[atu]+b?san|"
                 r"libubsan|libsparse24(-nn|-cuda)?)\.so")


class Bom(unittest.TestCase):
    def properties(self, component):
        return {p["name"]: p["value"] for p in component["properties"]}

    def test_members_that_the_schema_requires(self):
        self.assertEqual((BOM["bomFormat"], BOM["specVersion"]), ("CycloneDX", "1.5"))
        self.assertGreaterEqual(BOM["version"], 1)
        self.assertLessEqual(BOM.keys(),
                             {"bomFormat", "specVersion", "version", "metadata", "components",
                              "dependencies"})
        for component in [BOM["metadata"]["component"], *BOM["components"]]:
            with self.subTest(component.get("name")):
                self.assertIn(component["type"], ("library", "application"))
                self.assertTrue(component["name"])
                self.assertLessEqual(component.keys(),
                                     {"type", "bom-ref", "name", "version", "scope", "licenses",
                                      "properties"})
                self.assertIn(component.get("scope", "required"), ("required", "optional"))
                (licence,) = component["licenses"]
                self.assertTrue(licence.get("expression") or licence["license"]["name"])
                self.assertNotEqual(component.get("version"), "")

    def test_references_are_of_components(self):
        names = [c["bom-ref"] for c in [BOM["metadata"]["component"], *BOM["components"]]]
        self.assertEqual(len(names), len(set(names)))
        for entry in BOM["dependencies"]:
            self.assertIn(entry["ref"], names)
            self.assertLessEqual(set(entry["dependsOn"]), set(names))

    def test_version(self):
        header = (SOURCE / "include/sparse24/sparse24.h").read_text()
        self.assertEqual(BOM["metadata"]["component"]["version"],
                         re.search(r'S24_VERSION +"(.*)"', header).group(1))

    def named(self):
        files = (self.properties(c)["sparse24:file"] for c in BOM["components"])
        return tuple(file for file in files if file)

    def test_what_is_opened_is_named(self):
        has_plugin = (BUILD / "libsparse24-cuda.so.0").exists()
        opened = set()
        for path in [*SOURCE.glob("src/**/*"), *SOURCE.glob("cli/**/*")]:
            if path.suffix in (".c", ".h", ".cu") and (has_plugin or "cuda" not in path.parts):
                opened |= set(re.findall(r'"(lib[\w-]+\.so)[.0-9]*"', path.read_text()))
        # An engine that this build has not is not opened.
        opened -= {f"libsparse24-{part}.so" for part in ("cuda", "mpi")} | {"libdnnl.so"}
        self.assertLessEqual(opened, set(self.named()))
        self.assertGreater(len(opened), 4)

    def test_versions_are_those_of_headers(self):
        """Of libraries that are linked each says which it is, where its headers do."""
        for component in BOM["components"]:
            if self.properties(component)["sparse24:how"] == "linked" and \
                    component["name"] != "cblas":
                self.assertRegex(component["version"], r"^\d+(\.\d+)*$", component)

    def test_what_is_linked_is_named(self):
        named = self.named()
        for file in ("sparse24", "libsparse24.so", "libsparse24-nn.so", "libsparse24-cuda.so.0",
                     "libsparse24-mpi.so.0"):
            if not (BUILD / file).exists():
                continue
            for needed in elf.Elf(BUILD / file).dynamic_texts(elf.DT_NEEDED):
                with self.subTest(file=file, needed=needed):
                    self.assertTrue(OWN.match(needed) or needed.startswith(named))


if __name__ == "__main__":
    unittest.main()
