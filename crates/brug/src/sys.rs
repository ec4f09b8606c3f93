// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's allocator.

use core::ffi::c_void;
#[cfg(feature = "preload")]
use core::{ffi::c_int, ptr};

#[cfg(feature = "preload")]
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::words::Alloc;

pub(crate) const ALLOC: Alloc = alloc;

#[cfg(not(feature = "preload"))]
mod names {
    pub(crate) use libc::{calloc, free, malloc, malloc_usable_size, memalign, realloc};
}

pub(crate) use names::malloc as alloc;

/// Where the library whose `malloc` we use is loaded, and where it says where its tables are; 0: not known yet.
#[cfg(feature = "preload")]
static BASE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// A function of the library whose `malloc` we use; null if it has none of that name. Found in the library's own
/// tables: `dlsym` takes the loader's lock, which another thread may hold for long, or while it waits for the caller.
#[cfg(feature = "preload")]
#[link_section = startup!()]
pub(crate) fn symbol(name: &core::ffi::CStr) -> *mut c_void {
    if BASE[1].load(Acquire) == 0 {
        // Takes a lock of the loader's as well, so it is to be before `main`.
        let library = library_of(names::malloc as *const () as usize);
        BASE[0].store(library.base, Relaxed);
        BASE[1].store(library.dynamic, Release);
    }
    // SAFETY: what is loaded stays so.
    unsafe { defined(BASE[0].load(Relaxed), BASE[1].load(Relaxed), name) }
}

/// The function of a name that the library defines which is loaded at `base`; null if there is none. Without
/// a table of the usual kind of hashes it is the next of that name, for which the loader is asked.
///
/// # Safety
/// `dynamic` is where the library's table of tables is, of which the loader has made addresses.
#[cfg(feature = "preload")]
#[link_section = startup!()]
unsafe fn defined(base: usize, dynamic: usize, name: &core::ffi::CStr) -> *mut c_void {
    use core::ffi::{c_char, CStr};
    // From elf.h.
    const STRINGS: usize = 5;
    const SYMBOLS: usize = 6;
    const HASHES: usize = 0x6fff_fef5;
    const FUNCTION: u8 = 2;
    let table = |tag: usize| {
        let mut entry = dynamic as *const [usize; 2];
        // SAFETY: the last entry is null.
        unsafe {
            while (*entry)[0] != 0 && (*entry)[0] != tag {
                entry = entry.add(1);
            }
            (*entry)[1]
        }
    };
    let symbols = table(SYMBOLS) as *const libc::Elf64_Sym;
    let (strings, hashes) = (table(STRINGS) as *const c_char, table(HASHES) as *const u32);
    if hashes.is_null() {
        // SAFETY: a C string.
        return unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    }
    let step = |hash: u32, &byte: &u8| hash.wrapping_mul(33).wrapping_add(byte.into());
    let wanted = name.to_bytes().iter().fold(5381, step);
    // SAFETY: four numbers, words of a filter, then heads of chains, then the hashes in chains, the last of each
    // with its lowest bit set; each is of the symbol of its number.
    unsafe {
        let [heads, first, filter, _] = *hashes.cast::<[u32; 4]>();
        let head = hashes.add(4 + 2 * filter as usize);
        let chains = head.add(heads as usize);
        let mut at = *head.add((wanted % heads) as usize);
        while at >= first {
            let (hash, symbol) = (*chains.add((at - first) as usize), &*symbols.add(at as usize));
            let called = || CStr::from_ptr(strings.add(symbol.st_name as usize));
            if (hash ^ wanted) <= 1 && symbol.st_info & 0xf == FUNCTION && called() == name {
                return (base + symbol.st_value as usize) as *mut c_void;
            }
            if hash & 1 == 1 {
                break;
            }
            at += 1;
        }
    }
    ptr::null_mut()
}

/// The path of the library whose `malloc` we use, if that is not the C library. The program itself,
/// which the loader names by nothing, is no library.
#[cfg(feature = "preload")]
pub(crate) fn stand_in() -> Option<&'static core::ffi::CStr> {
    let library = library_of(names::malloc as *const () as usize);
    let other = library.base != library_of(libc::getauxval as *const () as usize).base;
    // SAFETY: the loader's string, which lives as long as the library.
    let name = (!library.name.is_null()).then(|| unsafe { core::ffi::CStr::from_ptr(library.name) });
    name.filter(|name| other && !name.is_empty())
}

/// Returns true if the function that the loader has found by a name of this library's is this
/// library's.
#[cfg(feature = "preload")]
pub(crate) fn is_here(function: usize) -> bool {
    let here = ptr::from_ref(crate::words::hot()) as usize;
    library_of(function).base == library_of(here).base || is_jump(function)
}

/// Returns true if a function is a jump to somebody else's. A program at a fixed address that takes
/// the address of `malloc` has such a one, which then is everybody's `malloc`.
#[cfg(feature = "preload")]
fn is_jump(function: usize) -> bool {
    const RTLD_DL_SYMENT: c_int = 1;
    const SHN_UNDEF: u16 = 0;
    extern "C" {
        fn dladdr1(
            address: *const c_void,
            about: *mut libc::Dl_info,
            symbol: *mut *const libc::Elf64_Sym,
            flags: c_int,
        ) -> c_int;
    }
    let mut about = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    let mut symbol = ptr::null();
    // SAFETY: both are valid for writing; what the loader says of a symbol stays where it is.
    unsafe {
        let found = dladdr1(
            function as *const c_void,
            about.as_mut_ptr(),
            &mut symbol,
            RTLD_DL_SYMENT,
        );
        found != 0 && !symbol.is_null() && (*symbol).st_shndx == SHN_UNDEF
    }
}

/// Returns true if programs' `malloc` is not this library's, because the program or a library
/// before this one has its own. Its `free` may pass to the C library's `__libc_free` objects that
/// came from functions which only this library defines.
#[cfg(all(feature = "preload", not(test)))]
pub(crate) fn is_bypassed() -> bool {
    !is_here(libc::malloc as *const () as usize)
}

// A unit test's `malloc` is the C library's, and its objects are not the program's.
#[cfg(any(not(feature = "preload"), test))]
pub(crate) fn is_bypassed() -> bool {
    false
}

/// What the loader says of a library.
#[cfg(feature = "preload")]
struct Library {
    /// What its addresses begin at.
    base: usize,
    /// Its path.
    name: *const core::ffi::c_char,
    /// Where it says where its tables are.
    dynamic: usize,
}

/// The library that an address is in; zeros and null if there is none. Unlike `dladdr` it does not go through all
/// symbols for the nearest one.
#[cfg(feature = "preload")]
fn library_of(address: usize) -> Library {
    struct Search {
        address: usize,
        found: Library,
    }
    #[link_section = startup!()]
    unsafe extern "C" fn look(
        library: *mut libc::dl_phdr_info,
        _: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description, and what is passed below.
        unsafe {
            let (library, search) = (&*library, &mut *search.cast::<Search>());
            let base = library.dlpi_addr as usize;
            let offset = search.address.wrapping_sub(base);
            let parts = || (0..library.dlpi_phnum as usize).map(|part| &*library.dlpi_phdr.add(part));
            let there = parts().any(|part| {
                part.p_type == libc::PT_LOAD
                    && offset.wrapping_sub(part.p_vaddr as usize) < part.p_memsz as usize
            });
            if there {
                let dynamic = parts().find(|part| part.p_type == libc::PT_DYNAMIC);
                search.found = Library {
                    base,
                    name: library.dlpi_name,
                    dynamic: dynamic.map_or(0, |part| base + part.p_vaddr as usize),
                };
            }
            c_int::from(there)
        }
    }
    let found = Library {
        base: 0,
        name: ptr::null(),
        dynamic: 0,
    };
    let mut search = Search { address, found };
    // SAFETY: `look` takes this argument and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(look), ptr::from_mut(&mut search).cast()) };
    search.found
}

/// In the library that is `malloc` itself, the C library's goes by other names.
#[cfg(feature = "preload")]
mod names {
    use core::ffi::c_void;
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    extern "C" {
        #[link_name = "__libc_malloc"]
        pub(crate) fn malloc(size: usize) -> *mut c_void;
        #[link_name = "__libc_calloc"]
        pub(crate) fn calloc(n: usize, size: usize) -> *mut c_void;
        #[link_name = "__libc_realloc"]
        pub(crate) fn realloc(p: *mut c_void, size: usize) -> *mut c_void;
        #[link_name = "__libc_free"]
        pub(crate) fn free(p: *mut c_void);
        #[link_name = "__libc_memalign"]
        pub(crate) fn memalign(align: usize, size: usize) -> *mut c_void;
    }

    /// `malloc_usable_size` has no second name, and the next one after ours may be that of
    /// another allocator that the program is linked with.
    pub(crate) fn usable_size() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut next = NEXT.load(Relaxed);
        if next == 0 {
            next = super::symbol(c"malloc_usable_size") as usize;
            NEXT.store(next, Relaxed);
        }
        next
    }

    pub(crate) unsafe fn malloc_usable_size(p: *mut c_void) -> usize {
        let next = usable_size();
        if next == 0 {
            return 0;
        }
        // SAFETY: the C library's function of this signature.
        let f: unsafe extern "C" fn(*mut c_void) -> usize =
            unsafe { core::mem::transmute(next) };
        // SAFETY: by the contract of the caller.
        unsafe { f(p) }
    }
}

/// Looks up what has no second name, while no other thread can hold the loader's lock.
#[cfg(feature = "preload")]
pub(crate) fn prepare() {
    names::usable_size();
    find_loader();
}

/// Address and length of the loader; 0: not known yet, or it has been called by its own name.
#[cfg(feature = "preload")]
static LOADER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

#[cfg(feature = "preload")]
fn find_loader() {
    // SAFETY: the kernel says where the loader is, which begins with the head of its file. Neither
    // is ever unmapped.
    unsafe {
        let base = libc::getauxval(libc::AT_BASE) as usize;
        if base == 0 {
            return;
        }
        let head = &*(base as *const libc::Elf64_Ehdr);
        let parts = (base + head.e_phoff as usize) as *const libc::Elf64_Phdr;
        let end = (0..head.e_phnum as usize)
            .map(|part| &*parts.add(part))
            .filter(|part| part.p_type == libc::PT_LOAD)
            .map(|part| (part.p_vaddr + part.p_memsz) as usize)
            .max();
        LOADER[0].store(base, Relaxed);
        LOADER[1].store(end.unwrap_or(0), Relaxed);
    }
}

/// Returns true if the loader is what is at an address.
#[cfg(feature = "preload")]
#[inline]
pub(crate) fn is_loader(address: usize) -> bool {
    address.wrapping_sub(LOADER[0].load(Relaxed)) < LOADER[1].load(Relaxed)
}

#[inline(always)]
pub(crate) unsafe fn malloc(size: usize) -> *mut u8 {
    // SAFETY: no preconditions.
    unsafe { names::malloc(size).cast() }
}

#[inline(always)]
pub(crate) unsafe fn calloc(n: usize, size: usize) -> *mut u8 {
    // SAFETY: no preconditions.
    unsafe { names::calloc(n, size).cast() }
}

#[inline(always)]
pub(crate) unsafe fn realloc(p: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: an object of the C library, by the contract of the caller.
    unsafe { names::realloc(p.cast::<c_void>(), size).cast() }
}

#[inline(always)]
pub(crate) unsafe fn free(p: *mut u8) {
    // SAFETY: an object of the C library, by the contract of the caller.
    unsafe { names::free(p.cast::<c_void>()) }
}

#[inline]
pub(crate) unsafe fn memalign(align: usize, size: usize) -> *mut u8 {
    // SAFETY: no preconditions.
    unsafe { names::memalign(align, size).cast() }
}

#[inline]
pub(crate) unsafe fn usable_size(p: *mut u8) -> usize {
    // SAFETY: an object of the C library, by the contract of the caller.
    unsafe { names::malloc_usable_size(p.cast::<c_void>()) }
}
