// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modes of the paper (section III-A), and the size template.

use core::fmt;
use core::str::FromStr;

use nocopy_settings::Size;

/// Where objects live. The mode decides about new objects, and about the next move
/// of one that exists; an object is always freed by the allocator that has it,
/// whatever the mode is then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// The C library (the paper's SYS).
    Sys = 0,
    /// jemalloc. Needs the feature `jemalloc`.
    Jemalloc = 1,
    /// mimalloc. Needs the feature `mimalloc`.
    Mimalloc = 2,
    /// Growth slots for everything from one page on; smaller objects stay with the
    /// base allocator, since a mapping cannot be smaller than a page.
    Mmap = 3,
    /// By size, as the [`Template`] says (the paper's BrugTemplate).
    Template = 4,
    /// Base allocator for what is small, growth slots for what is large or keeps
    /// growing, by measurement in between (the paper's BrugAutoOpt).
    Auto = 5,
}

impl Mode {
    /// All modes, in the paper's order.
    pub const ALL: [Mode; 6] = [
        Mode::Sys,
        Mode::Jemalloc,
        Mode::Mimalloc,
        Mode::Mmap,
        Mode::Template,
        Mode::Auto,
    ];

    pub(crate) fn from_u8(n: u8) -> Mode {
        Mode::ALL[n as usize]
    }

    /// The name that `BRUG_ALLOC` takes.
    pub fn name(self) -> &'static str {
        ["sys", "jemalloc", "mimalloc", "mmap", "template", "auto"][self as usize]
    }

    /// Returns true if this build has what the mode needs.
    pub fn is_available(self) -> bool {
        match self {
            Mode::Jemalloc => Base::Jemalloc.is_available(),
            Mode::Mimalloc => Base::Mimalloc.is_available(),
            _ => true,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not the name of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMode;

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a mode: sys, jemalloc, mimalloc, mmap, template or auto")
    }
}

impl core::error::Error for UnknownMode {}

impl FromStr for Mode {
    type Err = UnknownMode;

    /// Takes the names in any case, and the paper's spellings.
    fn from_str(s: &str) -> Result<Self, UnknownMode> {
        const NAMES: [(&str, Mode); 11] = [
            ("sys", Mode::Sys),
            ("glibc", Mode::Sys),
            ("ptmalloc2", Mode::Sys),
            ("jemalloc", Mode::Jemalloc),
            ("mimalloc", Mode::Mimalloc),
            ("mmap", Mode::Mmap),
            ("mremap", Mode::Mmap),
            ("template", Mode::Template),
            ("brugtemplate", Mode::Template),
            ("auto", Mode::Auto),
            ("brugautoopt", Mode::Auto),
        ];
        NAMES
            .iter()
            .find(|(name, _)| s.eq_ignore_ascii_case(name))
            .map(|&(_, mode)| mode)
            .ok_or(UnknownMode)
    }
}

impl Mode {
    /// Returns true if some objects are `base`'s in this mode, whatever else is configured.
    pub(crate) fn uses(self, base: Base, template: &Template) -> bool {
        let is = |mode| match base {
            Base::Glibc => mode == Mode::Sys,
            Base::Jemalloc => mode == Mode::Jemalloc,
            Base::Mimalloc => mode == Mode::Mimalloc,
        };
        match self {
            Mode::Template => template.ranges[..template.len].iter().any(|r| is(r.1)),
            mode => is(mode),
        }
    }
}

/// The end of messages that an allocator is not part of this build: what this is, and where to get the allocator.
pub(crate) const THIS_BUILD: &str = if cfg!(feature = "preload") {
    "libbrug.so; a Rust program has it with the feature of that name"
} else {
    "this build; enable the feature of that name"
};

/// This build lacks the allocator that a mode needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeUnavailable(pub Mode);

impl fmt::Display for ModeUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode {} is not part of {THIS_BUILD}", self.0)
    }
}

impl core::error::Error for ModeUnavailable {}

/// The allocator under everything that is not in a growth slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Base {
    /// The C library's.
    Glibc = 0,
    /// jemalloc. Needs the feature `jemalloc`.
    Jemalloc = 1,
    /// mimalloc. Needs the feature `mimalloc`.
    Mimalloc = 2,
}

impl Base {
    /// All of them.
    pub const ALL: [Base; 3] = [Base::Glibc, Base::Jemalloc, Base::Mimalloc];

    pub(crate) fn from_u8(n: u8) -> Base {
        Base::ALL[n as usize]
    }

    /// The name that `BRUG_BASE` takes.
    pub fn name(self) -> &'static str {
        ["glibc", "jemalloc", "mimalloc"][self as usize]
    }

    /// Returns true if this build has it.
    pub fn is_available(self) -> bool {
        [true, cfg!(feature = "jemalloc"), cfg!(feature = "mimalloc")][self as usize]
    }
}

impl FromStr for Base {
    type Err = UnknownMode;

    fn from_str(s: &str) -> Result<Self, UnknownMode> {
        match s.parse()? {
            Mode::Sys => Ok(Base::Glibc),
            Mode::Jemalloc => Ok(Base::Jemalloc),
            Mode::Mimalloc => Ok(Base::Mimalloc),
            _ => Err(UnknownMode),
        }
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

const MOST_RANGES: usize = 8;

/// Which allocator serves which sizes: the paper's size template.
///
/// ```
/// use brug::{Mode, Template};
/// let template: Template = "0-64K:sys,64K-:mmap".parse().unwrap();
/// assert_eq!(template.mode_for(5000), Mode::Sys);
/// let built = Template::builder().below(4096, Mode::Sys).rest(Mode::Mmap).unwrap();
/// assert_eq!(built.mode_for(4096), Mode::Mmap);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// Exclusive upper bounds, ascending; the last is `usize::MAX`.
    ranges: [(usize, Mode); MOST_RANGES],
    len: usize,
}

/// Why a text is not a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// A range is not of the form `FROM-TO:ALLOCATOR`.
    Syntax,
    /// A range does not begin where the one before it ends, the first not at 0, or
    /// the last has an end.
    Gap,
    /// More than 8 ranges.
    TooMany,
    /// Not one of sys, jemalloc, mimalloc, mmap.
    Allocator,
    /// An allocator that this build lacks.
    Unavailable(Mode),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateError::Syntax => f.write_str("ranges look like 0-4K:sys,4K-:mmap"),
            TemplateError::Gap => f.write_str("ranges must go from 0 to the open end without gaps"),
            TemplateError::TooMany => write!(f, "more than {MOST_RANGES} ranges"),
            TemplateError::Allocator => f.write_str("allocators are sys, jemalloc, mimalloc, mmap"),
            TemplateError::Unavailable(mode) => write!(f, "{}", ModeUnavailable(*mode)),
        }
    }
}

impl core::error::Error for TemplateError {}

impl Template {
    /// The paper's: jemalloc below 4 KiB, C library below 64 KiB, mappings from there
    /// on. A build without jemalloc has the C library in its place.
    pub const PRESET: Template = {
        let mut ranges = [(usize::MAX, Mode::Mmap); MOST_RANGES];
        let small = if cfg!(feature = "jemalloc") {
            Mode::Jemalloc
        } else {
            Mode::Sys
        };
        ranges[0] = (4096, small);
        ranges[1] = (65536, Mode::Sys);
        Template { ranges, len: 3 }
    };

    /// Starts a template from the smallest size up.
    pub const fn builder() -> TemplateBuilder {
        TemplateBuilder {
            template: Template {
                ranges: [(usize::MAX, Mode::Sys); MOST_RANGES],
                len: 0,
            },
            error: None,
        }
    }

    /// The allocator for objects of `size` bytes: `Sys`, `Jemalloc`, `Mimalloc` or
    /// `Mmap`.
    #[inline]
    pub fn mode_for(&self, size: usize) -> Mode {
        let mut i = 0;
        while i + 1 < self.len && size >= self.ranges[i].0 {
            i += 1;
        }
        self.ranges[i].1
    }

    /// Who serves the smallest objects, and up to which size.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn first(&self) -> (Mode, usize) {
        let (_, mode) = self.ranges[0];
        let same = self.ranges[..self.len]
            .iter()
            .take_while(|r| r.1 == mode)
            .count();
        (mode, self.ranges[same - 1].0 - 1)
    }
}

impl Default for Template {
    fn default() -> Self {
        Template::PRESET
    }
}

impl fmt::Display for Template {
    /// Writes the form that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut from = 0;
        for (i, &(to, mode)) in self.ranges[..self.len].iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            if i + 1 == self.len {
                write!(f, "{comma}{}-:{mode}", Size(from as u64))?;
            } else {
                write!(f, "{comma}{}-{}:{mode}", Size(from as u64), Size(to as u64))?;
            }
            from = to;
        }
        Ok(())
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({self})")
    }
}

/// A number of bytes as people write it.
pub(crate) fn size(text: &str) -> Option<usize> {
    nocopy_settings::size(text).and_then(|bytes| usize::try_from(bytes).ok())
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(s: &str) -> Result<Self, TemplateError> {
        let mut builder = Template::builder();
        let mut end = Some(0);
        for range in s.split(',') {
            let (sizes, allocator) = range.split_once(':').ok_or(TemplateError::Syntax)?;
            let (from, to) = sizes.split_once('-').ok_or(TemplateError::Syntax)?;
            let from = size(from.trim()).ok_or(TemplateError::Syntax)?;
            if end != Some(from) {
                return Err(TemplateError::Gap);
            }
            let mode = allocator
                .trim()
                .parse()
                .map_err(|_| TemplateError::Allocator)?;
            if to.trim().is_empty() {
                end = None;
                builder = builder.below(usize::MAX, mode);
            } else {
                let to = size(to.trim()).ok_or(TemplateError::Syntax)?;
                end = Some(to);
                builder = builder.below(to, mode);
            }
        }
        if end.is_some() {
            return Err(TemplateError::Gap);
        }
        builder.finish()
    }
}

/// Builds a [`Template`], range by range.
#[derive(Clone, Copy, Debug)]
pub struct TemplateBuilder {
    template: Template,
    error: Option<TemplateError>,
}

impl TemplateBuilder {
    /// Objects of fewer than `bytes` bytes, and not in an earlier range.
    pub const fn below(mut self, bytes: usize, mode: Mode) -> Self {
        let n = self.template.len;
        let unordered = if n == 0 {
            bytes == 0
        } else {
            bytes <= self.template.ranges[n - 1].0
        };
        if self.error.is_some() {
        } else if n == MOST_RANGES {
            self.error = Some(TemplateError::TooMany);
        } else if matches!(mode, Mode::Template | Mode::Auto) {
            self.error = Some(TemplateError::Allocator);
        } else if unordered {
            self.error = Some(TemplateError::Gap);
        } else {
            self.template.ranges[n] = (bytes, mode);
            self.template.len = n + 1;
        }
        self
    }

    /// All larger objects; completes the template.
    ///
    /// # Errors
    /// The first mistake made while building.
    pub fn rest(self, mode: Mode) -> Result<Template, TemplateError> {
        self.below(usize::MAX, mode).finish()
    }

    fn finish(self) -> Result<Template, TemplateError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        for &(_, mode) in &self.template.ranges[..self.template.len] {
            if !mode.is_available() {
                return Err(TemplateError::Unavailable(mode));
            }
        }
        Ok(self.template)
    }
}
