// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adaptive memory allocator that grows objects in place instead of copying them.
