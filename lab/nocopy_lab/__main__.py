# SPDX-License-Identifier: MIT OR Apache-2.0
from nocopy_lab.cli import main

main()
