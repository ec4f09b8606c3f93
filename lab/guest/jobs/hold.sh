# SPDX-License-Identifier: MIT OR Apache-2.0
# Pages of the heap's buffers are held, while they exist and afterwards.

need scratch /dev/vda
# What Linux calls it depends on its version.
need hold --device "/dev/dma_heap/$(ls /dev/dma_heap | head -n 1)"
