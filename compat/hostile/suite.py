"""Bad input, bad clients and bad disks: `compat/run hostile [NAME...]`, names as unittest takes them.

Only the offender may suffer. After every test a well-behaved client works on every kind of port, and the
process is the one that was started. The seed of the random parts is printed; `SETTEE_SEED` repeats it.
"""

import sys
import unittest

import case

if __name__ == "__main__":
    names = sys.argv[1:] or ["test_frames", "test_ports", "test_rest", "test_functions", "test_sockets", "test_floods", "test_disk"]
    print(f"seed {case.SEED}", flush=True)
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    try:
        case.start()
        result = unittest.TextTestRunner(sys.stdout, verbosity=2).run(suite)
        case.stop()
    finally:
        case.NODE.kill()
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    print(f"hostile: {passed} passed, {failed} failed, {len(result.skipped)} skipped")
    sys.exit(1 if failed or not passed else 0)
