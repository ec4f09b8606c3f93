// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that work for this crate alone.

use std::sync::OnceLock;

static THREAD_HOOK: OnceLock<fn(bool)> = OnceLock::new();

/// Every thread of this crate calls `hook(true)` before anything else, and is this crate's to its last
/// instruction. A thread that forks calls `hook(true)` and `hook(false)` around this crate's fork
/// handler. For libraries that put themselves between a program and the system, and must tell this
/// crate's calls from the program's. Only the first hook counts.
pub fn set_thread_hook(hook: fn(bool)) {
    let _ = THREAD_HOOK.set(hook);
}

/// Lives as long as a thread works for this crate alone; of this crate's own threads it is never dropped.
pub(crate) struct OwnThread(());

impl OwnThread {
    pub(crate) fn begin() -> OwnThread {
        if let Some(hook) = THREAD_HOOK.get() {
            hook(true);
        }
        OwnThread(())
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(hook) = THREAD_HOOK.get() {
            hook(false);
        }
    }
}
