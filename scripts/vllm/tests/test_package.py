"""The package as pip installs it and as a mounted folder are the same."""

import importlib.metadata
import re
import unittest

from standins import PACKAGE, Case


class Package(unittest.TestCase):
    def test_mounted_folder_has_the_same_version_and_entry_point(self):
        source = (PACKAGE / "carryover_vllm/__init__.py").read_text()
        version = re.search(r'^__version__ = "(.*)"$', source, re.M).group(1)
        (mounted,) = importlib.metadata.distributions(name="carryover-vllm", path=[str(PACKAGE)])
        self.assertEqual(mounted.version, version)
        (entry,) = mounted.entry_points
        self.assertEqual((entry.group, entry.name), ("vllm.general_plugins", "carryover"))
        project = (PACKAGE / "pyproject.toml").read_text()
        self.assertIn(f'[project.entry-points."{entry.group}"]\n{entry.name} = "{entry.value}"\n', project)
        self.assertIn('name = "carryover-vllm"', project)


class EntryPoint(Case):
    def test_leads_to_register(self):
        (mounted,) = importlib.metadata.distributions(name="carryover-vllm", path=[str(PACKAGE)])
        (entry,) = mounted.entry_points
        entry.load()()
        self.assertEqual(self.log.warnings(), [])
