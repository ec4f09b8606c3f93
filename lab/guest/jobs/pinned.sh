# SPDX-License-Identifier: MIT OR Apache-2.0
# A huge page of the area is pinned for long: a buffer of io_uring, a dma-buf of a file.

echo 1 >/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages
need pin
