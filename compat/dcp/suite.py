"""DCP consumers that are slow, many, or die in mid-stream: `compat/run dcp [NAME...]`, names as unittest takes them."""

import sys
import unittest

import case

if __name__ == "__main__":
    names = sys.argv[1:] or ["test_slow", "test_aborts", "test_crashes"]
    print(f"seed {case.SEED}", flush=True)
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    try:
        case.start()
        result = unittest.TextTestRunner(sys.stdout, verbosity=2).run(suite)
        case.NODE.stop()
    finally:
        case.NODE.kill()
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    print(f"dcp: {passed} passed, {failed} failed, {len(result.skipped)} skipped")
    sys.exit(1 if failed or not passed else 0)
