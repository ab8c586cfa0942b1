"""`scripts/promises.py` shows what tests promise no more."""

from __future__ import annotations

from promises import gone, promises

BEFORE = '''
def test_it_counts():
    """It
    counts."""

class TestAll:
    def test_it_ends(self):
        """It ends."""
'''
AFTER = '''
def test_it_counts_all():
    """It counts."""

def test_it_begins():
    """It begins."""
'''


def test_a_promise_is_gone_if_no_test_of_any_file_makes_it():
    """Whatever the tests and their files are called, and wherever the lines break."""
    before, after = promises([("tests/a/test_a.py", BEFORE)]), promises([("tests/b/test_b.py", AFTER)])
    assert gone(before, after) == {"tests/a/test_a.py": {"It ends.": ["test_it_ends"]}}
    assert gone(after, before) == {"tests/b/test_b.py": {"It begins.": ["test_it_begins"]}}
