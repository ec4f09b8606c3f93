# SPDX-License-Identifier: MIT OR Apache-2.0
# What is tagged is swapped out into the area, and back.

need zram_swap 256
need mte
