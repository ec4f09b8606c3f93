// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libpdio.so`: the streams of an unchanged program at direct-I/O speed.
//!
//! `LD_PRELOAD=libpdio.so program`. Files that the program reads or writes as long streams are read
//! and written by `pdio`; everything else reaches the C library after one load and one compare.
//! What is taken is chosen by environment variables, which [`settings`] reads.
//!
//! * [`next`]: the C library's functions behind the exported ones; [`symbols`] finds them.
//! * [`table`]: what is known of each descriptor, and the lock of a stream.
//! * [`take`]: taking a stream over, and when not to; [`filesystem`]: what the file's filesystem allows.
//! * [`stream`]: one stream, its bytes and its position.
//! * [`serve`]: the calls that streams serve.
//! * [`give_way`]: streams drain or go back before others can notice; [`locks`]: so that locks keep their
//!   meaning.
//! * [`descriptors`]: what closing and duplicating do to a stream.
//! * [`all`]: what is done with all streams at once.
//! * [`direct`]: misaligned I/O on descriptors that the program opened with `O_DIRECT`.
//! * [`hooks`]: the exported calls on descriptors and paths; [`process`]: those that start or end a
//!   process or change what it may do.
//! * [`makers`]: calls that make descriptors, of which there is a limited number.
//! * [`memory`]: whether memory that the program names is there.
//! * [`tell`]: what was written is with the kernel before the program can tell anybody.
//! * [`signals`]: what was written is with the kernel when a signal ends the process.
//! * [`report`]: `PDIO_STATS`; [`say`]: messages.
//! * [`acts`]: what lower layers have done by [`all`].
//! * [`state`], [`local`], [`errno`]: what every layer reads, of the process and of each thread.
//!
//! The program must not notice. So a stream is handed back for good, everything written and the
//! kernel's offset right, before anything happens that this library cannot follow: another process
//! or another way to the same file, a mapping, a kernel-side copy. A call on a stream that is not
//! taken allocates nothing and takes no lock.

use core::ffi::{c_char, c_int};

mod acts;
mod all;
mod descriptors;
mod direct;
mod errno;
mod filesystem;
mod give_way;
mod guard;
mod hooks;
mod jump;
mod local;
mod locks;
mod look;
mod makers;
mod memory;
mod next;
mod process;
mod report;
mod say;
mod serve;
mod settings;
mod signals;
mod state;
mod stream;
mod symbols;
mod table;
mod take;
mod taken;
mod tell;

/// Returns true if the program was built with ThreadSanitizer, or is run by valgrind. The first sees the library's calls,
/// but not what orders them, and reports races for so long that the program seems to stand. The second does not heed what a
/// handler of a signal says is to be blocked when it returns: a signal that waits would come again for ever.
fn is_watched() -> bool {
    symbols::weak!("__tsan_init") != 0 || symbols::runs_in_valgrind()
}

// What the compiler's startup files would define, which are left out of the library, but not of a test program.
#[cfg(not(test))]
core::arch::global_asm!(
    ".pushsection .rodata.pdio_dso_handle, \"a\"",
    ".hidden __dso_handle",
    ".globl __dso_handle",
    ".p2align 3",
    "__dso_handle:",
    ".quad 0",
    ".popsection",
);

extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    table::open_up();
    // With rights that the caller lacks, the program is left alone.
    // SAFETY: no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    let before = errno::get();
    symbols::prepare();
    pdio::set_thread_hook(guard::own_thread);
    pdio::prepare_threads();
    // SAFETY: the environment is the loader's.
    unsafe { settings::read(environment) };
    state::claim_process();
    acts::register(&all::ACTS);
    report::prepare();
    process::prepare();
    state::set_active(!is_watched());
    errno::set(before);
}

/// Called by the loader with the program's arguments and environment, before `main`.
#[used]
#[link_section = ".init_array"]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;
