// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storage streams at direct-I/O speed for every block size.
