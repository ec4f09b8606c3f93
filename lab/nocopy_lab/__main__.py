# SPDX-License-Identifier: MIT OR Apache-2.0
import signal
import sys

# Until the lab has begun there is nothing to end.
signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    from nocopy_lab.cli import main
except ModuleNotFoundError as error:
    sys.exit(f"lab: {sys.prefix} lacks {error.name}; remove that directory, and run this again")

main()
