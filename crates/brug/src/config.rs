// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration, from the environment or from the program.

use core::cell::UnsafeCell;
use core::ffi::{c_char, CStr};
use core::ptr;
use core::str::FromStr;
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use nocopy_settings::{switch, time, Statistics, SIZE, STATISTICS, SWITCH};

use crate::mode::{size, Base, Mode, Template};
use crate::os;

/// Largest object that a slot can hold. Miri, for which memory is not free, has smaller slots.
pub(crate) const MAX_OBJECT: usize = if cfg!(miri) { 1 << 22 } else { 256 << 30 };
/// The address space reserved unless configured otherwise.
const DEFAULT_RESERVE: usize = 16 << 40;

/// The use of transparent huge pages in growth slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thp {
    /// From 2 MiB into an object on, once it is that large, where the system
    /// allows programs to ask for them, as long as they are faster than small ones.
    Default,
    /// From the start of every object that becomes larger than 2 MiB, fast or not.
    Always,
    /// Do not ask for them, and where the system gives them unasked, refuse.
    Never,
}

/// Everything that can be set. [`Config::from_env`] reads it from the environment.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Where objects live. `BRUG_ALLOC`
    pub mode: Mode,
    /// What [`Mode::Template`] follows. `BRUG_TEMPLATE`
    pub template: Template,
    /// The allocator of small objects in the modes that leave it open. `None`: in
    /// [`Mode::Auto`] what a trial or the profile finds best, else the C library.
    /// `BRUG_BASE`
    pub base: Option<Base>,
    /// [`Mode::Auto`] puts objects of this many bytes and more into growth slots;
    /// at least one page. `BRUG_SWITCH_POINT`, 128 KiB
    pub switch_point: usize,
    /// Huge pages. `BRUG_THP`
    pub thp: Thp,
    /// Milliseconds after which the memory of freed objects has gone back to the
    /// system; 0: at once. `BRUG_PURGE_DELAY`, 1s
    pub purge_delay_ms: u32,
    /// Bytes of freed memory kept until then. `None`: an eighth of what this process
    /// can have, at least 1 MiB, or what the C library would keep where memory counts when it is
    /// committed (`RLIMIT_DATA`, `vm.overcommit_memory=2`). `BRUG_RETAIN`
    pub retain: Option<usize>,
    /// Bytes of address space to reserve for growth slots; rounded down to a power
    /// of two, and halved until the system agrees. Less than 1 GiB: there are none.
    /// `BRUG_RESERVE`, 16 TiB
    pub reserve: usize,
    /// File in which the tuner keeps what it has learned; an absolute path. `BRUG_PROFILE`
    pub profile: Option<&'static CStr>,
    /// Where statistics go when the program ends. `BRUG_STATS`
    pub statistics: Statistics<&'static CStr>,
    /// True if the object monitor observes from the start. `BRUG_MONITOR`; needs the
    /// feature `monitor`.
    pub monitor: bool,
    /// Say on standard error when something had to be done another way.
    /// `BRUG_VERBOSE`
    pub verbose: bool,
}

extern "C" {
    static environ: *const *const c_char;
}

/// How the names of all variables begin.
const PREFIX: &[u8] = b"BRUG_";

/// The entries of an environment that begin with `BRUG_`. Of the others, which are many, no
/// more is read than it takes to see that: short programs come here as well.
///
/// # Safety
/// Null, or an array of C strings that ends with null and lives as long as the process.
pub unsafe fn variables(
    mut environment: *const *const c_char,
) -> impl Iterator<Item = &'static CStr> {
    core::iter::from_fn(move || {
        // SAFETY: by contract. A string is read up to the first byte that differs, at most its end.
        unsafe {
            while !environment.is_null() && !(*environment).is_null() {
                let entry = *environment;
                environment = environment.add(1);
                if (0..PREFIX.len()).all(|at| *entry.add(at).cast::<u8>() == PREFIX[at]) {
                    return Some(CStr::from_ptr(entry));
                }
            }
            None
        }
    })
}

/// Returns true if the kernel gave this process rights that its caller lacks.
#[inline]
pub fn is_secure() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

impl Config {
    /// What holds when nothing is said.
    pub const DEFAULT: Config = Config {
        mode: Mode::Auto,
        template: Template::PRESET,
        base: None,
        switch_point: 128 << 10,
        thp: Thp::Default,
        purge_delay_ms: 1000,
        retain: None,
        reserve: DEFAULT_RESERVE,
        profile: None,
        statistics: Statistics::No,
        monitor: false,
        verbose: false,
    };

    /// Returns true if the C library has an environment yet.
    pub(crate) fn env_is_there() -> bool {
        // SAFETY: a word of the C library's, written before there are threads.
        unsafe { !ptr::addr_of!(environ).read().is_null() }
    }

    /// Reads the environment. A malformed value leaves the default and prints one
    /// line on standard error. In a program with raised privileges (`AT_SECURE`) the
    /// environment is not looked at. Allocates nothing.
    #[link_section = startup!()]
    pub fn from_env() -> Config {
        let mut config = Config::DEFAULT;
        if is_secure() {
            return config;
        }
        // SAFETY: `environ` is null or a null-terminated array of C strings that live as
        // long as the process. It is read once, when the first object is allocated.
        for entry in unsafe { variables(ptr::addr_of!(environ).read()) } {
            config.set(&entry.to_bytes_with_nul()[PREFIX.len()..]);
        }
        config
    }

    /// `entry` is `NAME=value\0` without `BRUG_`.
    fn set(&mut self, entry: &'static [u8]) {
        let Some(eq) = entry.iter().position(|&b| b == b'=') else {
            return;
        };
        let Ok(value) = CStr::from_bytes_with_nul(&entry[eq + 1..]) else {
            return;
        };
        let Ok(name) = core::str::from_utf8(&entry[..eq]) else {
            return;
        };
        if value.is_empty() {
            return;
        }
        if let Some(wanted) = self.set_variable(name, value) {
            let text = value.to_str().unwrap_or("?");
            os::complain(format_args!(
                "BRUG_{name}={text} is not {wanted}; using the default"
            ));
        }
    }

    fn set_template(&mut self, text: &str) -> bool {
        match text.parse() {
            Ok(template) => self.template = template,
            Err(e) => os::complain(format_args!(
                "BRUG_TEMPLATE={text}: {e}; using {}",
                self.template
            )),
        }
        true
    }
}

const WITH_JEMALLOC: bool = cfg!(feature = "jemalloc");

/// Makes, of the list of all variables, their names and what sets them.
macro_rules! variables {
    ($config:ident, $value:ident, $text:ident; $($name:ident, $wanted:expr => $set:expr,)+) => {
        impl Config {
            /// Every variable that is read, and `BRUG_LIBRARY`, which is the command's.
            pub const VARIABLES: [&'static str; [$(stringify!($name)),+].len()] =
                [$(concat!("BRUG_", stringify!($name))),+];

            /// Sets the variable of this name, if there is one. Returns what it takes if the value
            /// makes no sense.
            fn set_variable(&mut self, name: &str, $value: &'static CStr) -> Option<&'static str> {
                let $config = self;
                let $text = $value.to_str().unwrap_or("?");
                match name {
                    $(stringify!($name) => (!$set).then_some($wanted),)+
                    _ => None,
                }
            }
        }
    };
}

variables! { config, value, text;
    ALLOC, match WITH_JEMALLOC {
        true => "sys, jemalloc, mimalloc, mmap, template or auto",
        false => "sys, mimalloc, mmap, template or auto",
    } =>
        put(&mut config.mode, text.parse().ok()),
    TEMPLATE, "" => config.set_template(text),
    BASE, match WITH_JEMALLOC {
        true => "auto, glibc, mimalloc or jemalloc",
        false => "auto, glibc or mimalloc",
    } =>
        if text.eq_ignore_ascii_case("auto") {
            put(&mut config.base, Some(None))
        } else {
            put(&mut config.base, text.parse().ok().map(Some))
        },
    SWITCH_POINT, "4K to 256G" => {
        let size = size(text).filter(|&n| (4096..=MAX_OBJECT).contains(&n));
        put(&mut config.switch_point, size)
    },
    THP, "default, always or never" => put(&mut config.thp, text.parse().ok()),
    PURGE_DELAY, "a time such as 500ms, at most a day" => {
        let ms = time(text).and_then(|time| u32::try_from(time.as_millis()).ok());
        put(&mut config.purge_delay_ms, ms.filter(|&n| n <= 86_400_000))
    },
    RETAIN, SIZE => put(&mut config.retain, size(text).map(Some)),
    RESERVE, "a size of at most 64T" =>
        put(&mut config.reserve, size(text).filter(|&n| n <= 64 << 40)),
    // A program may change its directory before the profile is written.
    PROFILE, "an absolute path" =>
        value.to_bytes().first() == Some(&b'/') && put(&mut config.profile, Some(kept(value))),
    STATS, STATISTICS => put(&mut config.statistics, statistics(value)),
    MONITOR, SWITCH => put(&mut config.monitor, switch(text)),
    VERBOSE, SWITCH => put(&mut config.verbose, switch(text)),
    LIBRARY, "" => true,
}

impl Default for Config {
    fn default() -> Self {
        Config::DEFAULT
    }
}

fn put<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|v| *place = v).is_some()
}

/// Nowhere if there is no memory for the name of the file.
fn statistics(value: &'static CStr) -> Option<Statistics<&'static CStr>> {
    let behind = |path: &[u8]| {
        let whole = value.to_bytes_with_nul();
        CStr::from_bytes_with_nul(&whole[whole.len() - 1 - path.len()..]).ok()
    };
    let wanted = nocopy_settings::statistics(value.to_bytes())?.map(|path| kept(behind(path)?));
    Some(match wanted {
        Statistics::StandardError => Statistics::StandardError,
        Statistics::Text(Some(path)) => Statistics::Text(path),
        Statistics::Json(Some(path)) => Statistics::Json(path),
        _ => Statistics::No,
    })
}

/// A copy, because a program may write its title over its environment, as redis does.
/// `None` if there is no memory, or if it is longer than a path can be.
fn kept(text: &CStr) -> Option<&'static CStr> {
    let bytes = text.to_bytes_with_nul();
    if bytes.len() > libc::PATH_MAX as usize {
        return None;
    }
    let copy = os::map_memory(os::page_round(bytes.len()));
    if copy.is_null() {
        return None;
    }
    // SAFETY: mapped above, long enough, and never unmapped.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
        Some(CStr::from_ptr(copy.cast_const().cast()))
    }
}

impl FromStr for Thp {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        for (name, thp) in [
            ("default", Thp::Default),
            ("always", Thp::Always),
            ("never", Thp::Never),
        ] {
            if s.eq_ignore_ascii_case(name) {
                return Ok(thp);
            }
        }
        Err(())
    }
}

struct Storage(UnsafeCell<Config>);
// SAFETY: written only as `install` says.
unsafe impl Sync for Storage {}

static STORAGE: Storage = Storage(UnsafeCell::new(Config::DEFAULT));
static DEFAULT: Config = Config::DEFAULT;
static CURRENT: AtomicPtr<Config> = AtomicPtr::new(ptr::from_ref(&DEFAULT).cast_mut());

/// The configuration in force.
#[inline]
pub(crate) fn current() -> &'static Config {
    // SAFETY: points to `DEFAULT`, or to `STORAGE`, which nobody writes any more.
    unsafe { &*CURRENT.load(Acquire) }
}

/// Puts a configuration in force.
///
/// # Safety
/// No other thread uses the allocator meanwhile, or this is the first call.
pub(crate) unsafe fn install(config: &Config) {
    // SAFETY: by contract.
    unsafe { *STORAGE.0.get() = *config };
    CURRENT.store(STORAGE.0.get(), Release);
}
