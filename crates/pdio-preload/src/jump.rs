// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that do something first and then jump to the C library's of the same name, with the stack
//! and every argument as the program left them: some return twice, some take any number of arguments.

use core::ptr;
use core::sync::atomic::{
    AtomicIsize, AtomicPtr,
    Ordering::{Acquire, Relaxed},
};

use crate::guard;
use crate::next::{lookup, missing, terminated};
use crate::symbols::{of_caller, Versions};

/// The arguments of a call.
pub type Words = [usize; 6];

/// One such function, as far as it is known yet. Zero at first, like what it takes no page for.
#[repr(C)]
pub struct Slot {
    /// Where to jump while there is nothing to do first: the C library's, or null.
    pub function: AtomicPtr<()>,
    /// The C library's, once it was looked up.
    pub next: AtomicPtr<()>,
}

/// What does not change of one. It is returned by code: a table of these is full of addresses, which the loader would
/// have to put right in every program.
pub struct About {
    pub name: &'static str,
    /// Of functions of which the C library has an older version that does something else.
    pub versions: Option<&'static Versions>,
    /// `before` runs while one of these is negative.
    pub while_negative: [&'static AtomicIsize; 2],
    pub before: unsafe fn(&Words),
    /// `before` runs in a thread inside this library as well: the program's handler of a fault there may end the
    /// process, or have another program take its place.
    pub inside: bool,
}

impl Slot {
    pub const fn new() -> Slot {
        Slot {
            function: AtomicPtr::new(ptr::null_mut()),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub fn next(&self, about: &About) -> *mut () {
        let mut next = self.next.load(Relaxed);
        if next.is_null() {
            next = lookup(about.name);
            self.next.store(next, Relaxed);
        }
        next
    }

    /// Does what comes before a call, and returns the C library's function. `errno` stays. `caller` is where the call
    /// returns to; it matters where there are versions, and where the function is not the C library's.
    ///
    /// # Safety
    /// The words are the program's arguments.
    pub unsafe fn begin(&self, about: &About, words: &Words, caller: usize) -> *mut () {
        let errno = crate::errno::get();
        let due = about
            .while_negative
            .iter()
            .any(|word| word.load(Acquire) < 0);
        if due && (about.inside || !guard::inside()) {
            // SAFETY: the caller's promise.
            unsafe { (about.before)(words) };
        }
        let mut next = self.next(about);
        if let Some(versions) = about.versions {
            next = versions.meant(terminated(about.name), next, caller);
        }
        if next == missing as *mut () && caller != 0 {
            next = of_caller(terminated(about.name), caller).unwrap_or(next);
        }
        crate::errno::set(errno);
        next
    }
}

/// For what is to be done before every call.
pub static ALWAYS: AtomicIsize = AtomicIsize::new(-1);

#[allow(
    improper_ctypes_definitions,
    reason = "the function is passed on as it came, to this library's own code"
)]
unsafe extern "C" fn arrived(
    slot: &Slot,
    words: &Words,
    caller: usize,
    about: fn() -> About,
) -> *mut () {
    // SAFETY: the words are the program's arguments.
    let function = unsafe { slot.begin(&about(), words, caller) };
    slot.function.store(function, Relaxed);
    function
}

/// Calls [`arrived`] and jumps to what it returns, with every argument where it was. The slot, and what there is to say
/// about it, come in registers that no argument uses.
#[unsafe(naked)]
pub unsafe extern "C" fn arrive() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push r9", "push r8", "push rcx", "push rdx", "push rsi", "push rdi", "push rax",
        "sub rsp, 136",
        "movaps [rsp], xmm0", "movaps [rsp + 16], xmm1",
        "movaps [rsp + 32], xmm2", "movaps [rsp + 48], xmm3",
        "movaps [rsp + 64], xmm4", "movaps [rsp + 80], xmm5",
        "movaps [rsp + 96], xmm6", "movaps [rsp + 112], xmm7",
        "mov rdi, r11",
        "lea rsi, [rbp - 48]",
        "mov rdx, [rbp + 8]",
        "mov rcx, r10",
        "call {arrived}",
        "mov r11, rax",
        "movaps xmm0, [rsp]", "movaps xmm1, [rsp + 16]",
        "movaps xmm2, [rsp + 32]", "movaps xmm3, [rsp + 48]",
        "movaps xmm4, [rsp + 64]", "movaps xmm5, [rsp + 80]",
        "movaps xmm6, [rsp + 96]", "movaps xmm7, [rsp + 112]",
        "add rsp, 136",
        "pop rax", "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop r8", "pop r9",
        "pop rbp",
        "jmp r11",
        arrived = sym arrived,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -224]!",
        "mov x29, sp",
        "stp x0, x1, [sp, 16]", "stp x2, x3, [sp, 32]",
        "stp x4, x5, [sp, 48]", "stp x6, x7, [sp, 64]", "str x8, [sp, 80]",
        "stp q0, q1, [sp, 96]", "stp q2, q3, [sp, 128]",
        "stp q4, q5, [sp, 160]", "stp q6, q7, [sp, 192]",
        "mov x0, x17",
        "add x1, sp, 16",
        "mov x2, x30",
        "mov x3, x16",
        "bl {arrived}",
        "mov x16, x0",
        "ldp x0, x1, [sp, 16]", "ldp x2, x3, [sp, 32]",
        "ldp x4, x5, [sp, 48]", "ldp x6, x7, [sp, 64]", "ldr x8, [sp, 80]",
        "ldp q0, q1, [sp, 96]", "ldp q2, q3, [sp, 128]",
        "ldp q4, q5, [sp, 160]", "ldp q6, q7, [sp, 192]",
        "ldp x29, x30, [sp], 224",
        "br x16",
        arrived = sym arrived,
    );
}

/// The body of a naked function that goes to [`arrive`] with a slot and the function that returns the rest.
macro_rules! arrive_with {
    ($slot:ident, $about:ident) => {{
        #[cfg(target_arch = "x86_64")]
        core::arch::naked_asm!(
            "lea r11, [rip + {slot}]",
            "lea r10, [rip + {about}]",
            "jmp {arrive}",
            slot = sym $slot,
            about = sym $about,
            arrive = sym $crate::jump::arrive,
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::naked_asm!(
            "adrp x17, {slot}",
            "add x17, x17, :lo12:{slot}",
            "adrp x16, {about}",
            "add x16, x16, :lo12:{about}",
            "b {arrive}",
            slot = sym $slot,
            about = sym $about,
            arrive = sym $crate::jump::arrive,
        );
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        compile_error!("write down how this processor jumps to a function");
    }};
}
pub(crate) use arrive_with;
