// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of other libraries, found without the loader's lock.
//!
//! A thread that opens a library holds that lock while the library's constructors run, and these may wait for another
//! thread: a call there that looks its function up by `dlsym` would wait for ever, where without this library
//! nothing is looked up. So the tables of what was loaded with the program are read here. The program cannot unload
//! that, and nothing of it changes once the loader has begun to run constructors.
//!
//! Of some functions the C library has an older version that does something else, which it gives to programs that
//! were built with it. This library's has no version, so it stands in for both; which of them its caller means is
//! in the caller's own tables ([`Versions`]).

use core::ffi::{c_char, c_int, c_void, CStr};
use core::mem::{transmute, MaybeUninit};
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// The address of a symbol that there may not be; zero then. The loader has looked it up.
macro_rules! weak {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: the loader has put the address there.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {address}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                address = out(reg) address,
                options(nostack, preserves_flags, pure, readonly),
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {address}, :got:", $name),
                concat!("ldr {address}, [{address}, :got_lo12:", $name, "]"),
                address = out(reg) address,
                options(nostack, preserves_flags, pure, readonly),
            );
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            {
                address = 0;
            }
        }
        address
    }};
}
pub(crate) use weak;

/// Returns true if valgrind runs the program.
pub fn runs_in_valgrind() -> bool {
    weak!("_vgnU_freeres") != 0
}

/// What the loader tells debuggers of a loaded file: `struct link_map`.
#[repr(C)]
pub struct Loaded {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *mut Loaded,
}

#[repr(C)]
struct Dynamic {
    tag: isize,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// The tables of a loaded file that symbols are found by.
struct Tables {
    base: usize,
    strings: *const c_char,
    symbols: *const Symbol,
    /// Version numbers of symbols; null: they have none.
    versions: *const u16,
    /// Versions of its own, and of those that it needs from others.
    own: *const u8,
    needed: *const u8,
    hash: *const u32,
    old_hash: *const u32,
    /// Relocations, and bytes of them: of functions that are called, and others.
    relocations: [(*const [usize; 3], usize); 2],
}

/// From `<elf.h>`.
mod tag {
    pub const NULL: isize = 0;
    pub const PLT_SIZE: isize = 2;
    pub const HASH: isize = 4;
    pub const STRINGS: isize = 5;
    pub const SYMBOLS: isize = 6;
    pub const RELA: isize = 7;
    pub const RELA_SIZE: isize = 8;
    pub const PLT: isize = 23;
    pub const GNU_HASH: isize = 0x6fff_fef5;
    pub const VERSIONS: isize = 0x6fff_fff0;
    pub const OWN: isize = 0x6fff_fffc;
    pub const NEEDED: isize = 0x6fff_fffe;
}

/// The bit of a version's number that keeps it from those who ask for none.
const HIDDEN: u16 = 0x8000;
/// The number of what has none.
const UNVERSIONED: u16 = 1;

impl Tables {
    /// # Safety
    /// The file stays loaded.
    unsafe fn of(file: &Loaded) -> Option<Tables> {
        let mut tables = Tables {
            base: file.base,
            strings: ptr::null(),
            symbols: ptr::null(),
            versions: ptr::null(),
            own: ptr::null(),
            needed: ptr::null(),
            hash: ptr::null(),
            old_hash: ptr::null(),
            relocations: [(ptr::null(), 0); 2],
        };
        let mut entry = file.dynamic;
        loop {
            // SAFETY: the table ends with a null entry.
            let Dynamic { tag, value } = unsafe { &*entry };
            // The loader has made addresses of most; where the table is read-only, it has not.
            let at = match *value < file.base {
                true => file.base + value,
                false => *value,
            };
            match *tag {
                tag::NULL => break,
                tag::STRINGS => tables.strings = at as _,
                tag::SYMBOLS => tables.symbols = at as _,
                tag::VERSIONS => tables.versions = at as _,
                tag::OWN => tables.own = at as _,
                tag::NEEDED => tables.needed = at as _,
                tag::GNU_HASH => tables.hash = at as _,
                tag::HASH => tables.old_hash = at as _,
                tag::PLT => tables.relocations[0].0 = at as _,
                tag::PLT_SIZE => tables.relocations[0].1 = *value,
                tag::RELA => tables.relocations[1].0 = at as _,
                tag::RELA_SIZE => tables.relocations[1].1 = *value,
                _ => {}
            }
            // SAFETY: not the last one.
            entry = unsafe { entry.add(1) };
        }
        (!tables.strings.is_null() && !tables.symbols.is_null()).then_some(tables)
    }

    unsafe fn string(&self, at: u32) -> &'static CStr {
        // SAFETY: strings end with zero bytes.
        unsafe { CStr::from_ptr(self.strings.add(at as usize)) }
    }

    /// The name of one of its own versions.
    unsafe fn own_version(&self, number: u16) -> Option<&CStr> {
        /// `Elf64_Verdef`; the name is the first of what follows.
        #[repr(C)]
        struct Version {
            revision: u16,
            flags: u16,
            number: u16,
            count: u16,
            hash: u32,
            name: u32,
            next: u32,
        }
        let mut at = self.own;
        while !at.is_null() {
            // SAFETY: each entry says how far it is to its name and to the next one.
            unsafe {
                let version = &*at.cast::<Version>();
                if version.number == number {
                    return Some(self.string(*at.add(version.name as usize).cast()));
                }
                if version.next == 0 {
                    return None;
                }
                at = at.add(version.next as usize);
            }
        }
        None
    }

    /// The name of a version that it needs from another file.
    unsafe fn needed_version(&self, number: u16) -> Option<&'static CStr> {
        /// `Elf64_Verneed`.
        #[repr(C)]
        struct File {
            revision: u16,
            count: u16,
            file: u32,
            first: u32,
            next: u32,
        }
        /// `Elf64_Vernaux`.
        #[repr(C)]
        struct Version {
            hash: u32,
            flags: u16,
            number: u16,
            name: u32,
            next: u32,
        }
        let mut at = self.needed;
        while !at.is_null() {
            // SAFETY: each entry says how far it is to its versions and to the next one.
            unsafe {
                let file = &*at.cast::<File>();
                let mut part = at.add(file.first as usize);
                for _ in 0..file.count {
                    let version = &*part.cast::<Version>();
                    if version.number & !HIDDEN == number {
                        return Some(self.string(version.name));
                    }
                    part = part.add(version.next as usize);
                }
                if file.next == 0 {
                    return None;
                }
                at = at.add(file.next as usize);
            }
        }
        None
    }

    /// A function that it defines, of this version or of that which those get who name none. Null if the loader has
    /// to find it, as the file's own code chooses one (`STT_GNU_IFUNC`).
    unsafe fn function(&self, name: &CStr, version: Option<&CStr>) -> Option<*mut ()> {
        const INDIRECT: u8 = 10;
        let defined = |at: u32| {
            // SAFETY: the hash tables have indices of symbols alone.
            let symbol = unsafe { &*self.symbols.add(at as usize) };
            // SAFETY: as above, and symbols have names.
            if symbol.section == 0 || unsafe { self.string(symbol.name) } != name {
                return None;
            }
            let number = match self.versions.is_null() {
                true => UNVERSIONED,
                // SAFETY: as above.
                false => unsafe { *self.versions.add(at as usize) },
            };
            let found = match version {
                None => number & HIDDEN == 0,
                // What has no version is what all get, whichever they name.
                Some(_) if number == UNVERSIONED => true,
                Some(version) => {
                    // SAFETY: the file's own table.
                    let own = unsafe { self.own_version(number & !HIDDEN) };
                    own == Some(version)
                }
            };
            found.then(|| match symbol.info & 0xf {
                INDIRECT => ptr::null_mut(),
                _ => (self.base + symbol.value) as *mut (),
            })
        };
        // SAFETY: the tables are as the loader reads them.
        unsafe {
            match self.hash.is_null() {
                false => self.in_table(name, defined),
                true => self.in_old_table(name, defined),
            }
        }
    }

    /// What `defined` says of the symbols that `DT_GNU_HASH` has under a name.
    unsafe fn in_table<T>(&self, name: &CStr, defined: impl Fn(u32) -> Option<T>) -> Option<T> {
        let wanted = name.to_bytes().iter().fold(5381u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(byte.into())
        });
        // SAFETY: four numbers, words of a filter, then heads of chains, then the hashes in chains, the last of each
        // with its lowest bit set.
        unsafe {
            let [heads, first, filter, _] = *self.hash.cast::<[u32; 4]>();
            if heads == 0 {
                return None;
            }
            let head = self.hash.add(4 + 2 * filter as usize);
            let chains = head.add(heads as usize);
            let mut at = *head.add((wanted % heads) as usize);
            while at >= first {
                let hash = *chains.add((at - first) as usize);
                if (hash ^ wanted) | 1 == 1 {
                    if let Some(found) = defined(at) {
                        return Some(found);
                    }
                }
                if hash & 1 == 1 {
                    break;
                }
                at += 1;
            }
        }
        None
    }

    /// The same of `DT_HASH`, for files that have no other.
    unsafe fn in_old_table<T>(&self, name: &CStr, defined: impl Fn(u32) -> Option<T>) -> Option<T> {
        if self.old_hash.is_null() {
            return None;
        }
        let wanted = name.to_bytes().iter().fold(0u32, |hash, &byte| {
            let hash = (hash << 4).wrapping_add(byte.into());
            let high = hash & 0xf000_0000;
            (hash ^ high >> 24) & !high
        });
        // SAFETY: two numbers, heads of chains, and for each symbol the next one.
        unsafe {
            let [heads, _] = *self.old_hash.cast::<[u32; 2]>();
            if heads == 0 {
                return None;
            }
            let head = self.old_hash.add(2);
            let mut at = *head.add((wanted % heads) as usize);
            while at != 0 {
                if let Some(found) = defined(at) {
                    return Some(found);
                }
                at = *head.add((heads + at) as usize);
            }
        }
        None
    }

    /// The version of a function that it needs.
    unsafe fn needs(&self, name: &CStr) -> Option<&'static CStr> {
        // SAFETY: the tables' sizes are theirs, and relocations name symbols of the table.
        unsafe {
            for (relocations, size) in self.relocations {
                for relocation in 0..size / size_of::<[usize; 3]>() {
                    let [_, info, _] = *relocations.add(relocation);
                    let symbol = info >> 32;
                    if symbol != 0 && self.string((*self.symbols.add(symbol)).name) == name {
                        if self.versions.is_null() {
                            return None;
                        }
                        return self.needed_version(*self.versions.add(symbol) & !HIDDEN);
                    }
                }
            }
        }
        None
    }
}

/// This library, and what was loaded last of what the program began with.
static OWN: AtomicPtr<Loaded> = AtomicPtr::new(ptr::null_mut());
static LAST: AtomicPtr<Loaded> = AtomicPtr::new(ptr::null_mut());

/// The start of `struct r_debug`.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *mut Loaded,
}

extern "C" {
    static _r_debug: Debug;
}

/// This library, as the loader describes it; null if it does not.
fn own() -> *mut Loaded {
    extern "C" {
        static _DYNAMIC: Dynamic;
        fn dladdr1(
            address: *const c_void,
            about: *mut libc::Dl_info,
            more: *mut *mut c_void,
            what: c_int,
        ) -> c_int;
    }
    const RTLD_DL_LINKMAP: c_int = 2;
    // SAFETY: what the loader has loaded so far; the results are ours.
    unsafe {
        let mut file = _r_debug.first;
        while !file.is_null() {
            if (*file).dynamic == &raw const _DYNAMIC {
                return file;
            }
            file = (*file).next;
        }
        // In a namespace of its own (`dlmopen`). Elsewhere this would look through all symbols.
        let mut about = MaybeUninit::<libc::Dl_info>::uninit();
        let mut found = ptr::null_mut();
        let address = own as fn() -> _ as *const c_void;
        match dladdr1(address, about.as_mut_ptr(), &mut found, RTLD_DL_LINKMAP) {
            0 => ptr::null_mut(),
            _ => found.cast(),
        }
    }
}

/// Notes what was loaded with the program, once. The constructors of libraries that it is linked with run before this
/// library's, and may load more; most of them call some function that is looked up here before.
pub fn prepare() {
    if !OWN.load(Acquire).is_null() {
        return;
    }
    let own = own();
    if own.is_null() {
        return;
    }
    let mut last = own;
    // SAFETY: what the loader has loaded so far.
    unsafe {
        while !(*last).next.is_null() {
            last = (*last).next;
        }
    }
    LAST.store(last, Relaxed);
    OWN.store(own, Release);
}

/// Calls `look` with the tables of each file after this library that the program began with, until one has what it
/// looks for.
fn search<T>(look: impl Fn(&Tables) -> Option<T>) -> Option<T> {
    prepare();
    let mut file = OWN.load(Acquire);
    let last = LAST.load(Relaxed);
    while !file.is_null() && file != last {
        // SAFETY: what the program began with stays loaded.
        let tables = unsafe {
            file = (*file).next;
            Tables::of(&*file)
        };
        if let Some(found) = tables.and_then(|tables| look(&tables)) {
            return Some(found);
        }
    }
    None
}

/// Returns true if the next definition of one of two functions after this library's is in a file that lacks the
/// other.
pub fn apart(one: &CStr, other: &CStr) -> bool {
    search(|tables| {
        // SAFETY: the file stays loaded.
        let [one, other] = [one, other].map(|name| unsafe { tables.function(name, None) });
        (one.is_some() || other.is_some()).then_some(one.is_some() != other.is_some())
    })
    .unwrap_or(false)
}

/// Returns true if this library has a function of this name.
pub fn is_own(name: &CStr) -> bool {
    prepare();
    // SAFETY: this library stays loaded.
    unsafe {
        let own = OWN.load(Acquire).as_ref();
        own.and_then(|own| Tables::of(own))
            .is_some_and(|tables| tables.function(name, None).is_some())
    }
}

/// The next definition of a function after this library's, as `dlsym` finds it with `RTLD_NEXT`, and of a version as
/// `dlvsym` does.
pub fn next(name: &CStr, version: Option<&CStr>) -> *mut () {
    // SAFETY: the file stays loaded.
    match search(|tables| unsafe { tables.function(name, version) }) {
        Some(found) if !found.is_null() => return found,
        _ => {}
    }
    // In what was loaded since, or not to be found so.
    // SAFETY: terminated strings.
    let found = unsafe {
        match version {
            None => libc::dlsym(libc::RTLD_NEXT, name.as_ptr()),
            Some(version) => libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()),
        }
    };
    found.cast()
}

/// An older version of a function, and who calls which.
pub struct Versions {
    older: AtomicPtr<()>,
    /// Calls that were met: the return address, shifted, and a bit for the older version.
    calls: [AtomicUsize; 16],
}

impl Versions {
    pub const fn new() -> Versions {
        Versions {
            older: AtomicPtr::new(ptr::null_mut()),
            calls: [const { AtomicUsize::new(0) }; 16],
        }
    }

    /// The function of this name that the code at `caller` means: `newest`, if it names no version.
    pub fn meant(&self, name: &CStr, newest: *mut (), caller: usize) -> *mut () {
        let call = &self.calls[caller % self.calls.len()];
        let known = call.load(Acquire);
        if known >> 1 != caller {
            let found = look_for(name, caller).unwrap_or(newest);
            let older = found != newest;
            if older {
                // There is one at most that does something else.
                self.older.store(found, Relaxed);
            }
            call.store(caller << 1 | usize::from(older), Release);
            return found;
        }
        match known & 1 {
            0 => newest,
            _ => self.older.load(Relaxed),
        }
    }
}

/// The file whose code is at `address`.
fn file_of(address: usize) -> Option<&'static Loaded> {
    /// `struct dl_find_object`, as of glibc 2.35.
    #[repr(C)]
    struct Found {
        flags: u64,
        start: usize,
        end: usize,
        file: *const Loaded,
        more: [usize; 8],
    }
    type Find = unsafe extern "C" fn(usize, *mut Found) -> c_int;
    // Without the loader's lock, and for handlers of signals.
    let find = next(c"_dl_find_object", None);
    if find.is_null() {
        return None;
    }
    let mut found = MaybeUninit::<Found>::uninit();
    // SAFETY: the function of this name is of this type, and describes what stays while its code is called.
    unsafe {
        match transmute::<*mut (), Find>(find)(address, found.as_mut_ptr()) {
            0 => (*found.as_ptr()).file.as_ref(),
            _ => None,
        }
    }
}

#[cold]
fn look_for(name: &CStr, caller: usize) -> Option<*mut ()> {
    // SAFETY: the caller's file is loaded while its call lasts.
    let function = unsafe {
        let tables = Tables::of(file_of(caller)?)?;
        next(name, Some(tables.needs(name)?))
    };
    (!function.is_null()).then_some(function)
}

/// The function of this name that the code at `caller` finds in a library which was opened with it, and which the rest
/// of the program does not see. By the loader, and not kept: that library may go.
#[cold]
pub fn of_caller(name: &CStr, caller: usize) -> Option<*mut ()> {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    let open = next(c"dlopen", None);
    if open.is_null() {
        return None;
    }
    // SAFETY: the function of this name is of this type; the strings are terminated, and the caller's file is loaded
    // while its call lasts, whether it is open here or not.
    let function = unsafe {
        let file = file_of(caller)?;
        let version = Tables::of(file).and_then(|tables| tables.needs(name));
        let opened =
            transmute::<*mut (), Open>(open)(file.name, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if opened.is_null() {
            return None;
        }
        let function = match version {
            None => libc::dlsym(opened, name.as_ptr()),
            Some(version) => libc::dlvsym(opened, name.as_ptr(), version.as_ptr()),
        };
        libc::dlclose(opened);
        function
    };
    // The program itself sees this library's, as it was loaded before all others.
    let holder = file_of(function as usize).map(ptr::from_ref);
    let is_own = holder.is_some_and(|holder| holder == OWN.load(Relaxed));
    (!function.is_null() && !is_own).then_some(function.cast())
}
