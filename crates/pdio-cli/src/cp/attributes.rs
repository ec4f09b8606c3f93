// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a copy gets from its source beside the bytes: owner, mode, times and extended attributes.
//!
//! The order matters: a change of owner clears bits of the mode, and the mode is a part of the access
//! control list. What this user may not set, or this filesystem cannot keep, is left out, as with cp, but for
//! access control lists and, for root, the owner: to lose one is a failure. A copy that is given a mode keeps no list but its source's:
//! that of its directory would give those in it what the source denies them.

use std::ffi::{CStr, CString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Uid, XattrFlags};
use rustix::io::Errno;

use crate::report::{quoted, reason, say, Context, Outcome, Progress};

/// What the names of access control lists begin with.
const LISTS: &[u8] = b"system.posix_acl_";
/// As XFS shows its access control lists a second time, to root, in its own form: there they are the list, and
/// elsewhere nothing keeps them up to date.
const OF_XFS: &[u8] = b"trusted.SGI_";
/// The list of a file or directory itself, and that which a directory gives to what is made in it.
const LIST: &CStr = c"system.posix_acl_access";
const DEFAULT_LIST: &CStr = c"system.posix_acl_default";

/// What was made, to be given an owner, a mode and times.
pub enum Made<'a> {
    Open(&'a File),
    /// Opened with `O_PATH`.
    Node(&'a File),
}

impl Made<'_> {
    pub fn new(file: &File, open: bool) -> Made<'_> {
        match open {
            true => Made::Open(file),
            false => Made::Node(file),
        }
    }

    fn set_owner(&self, user: Option<u32>, group: u32) -> io::Result<()> {
        let (user, group) = (user.map(Uid::from_raw), Some(Gid::from_raw(group)));
        Ok(match self {
            Made::Open(file) => rustix::fs::fchown(file, user, group),
            Made::Node(node) => rustix::fs::chownat(node, "", user, group, AtFlags::EMPTY_PATH),
        }?)
    }

    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        match self {
            Made::Open(file) => file.set_permissions(fs::Permissions::from_mode(mode)),
            Made::Node(node) => pdio::set_node_mode(node, mode),
        }
    }

    /// Its attributes: of a node by its name, as nothing tells them of what is only a path.
    fn holder<'a>(&'a self, path: &'a Path) -> Holder<'a> {
        match self {
            Made::Open(file) => Holder::Open(file),
            Made::Node(_) => Holder::Named(path),
        }
    }

    fn set_times(&self, times: &rustix::fs::Timestamps) -> io::Result<()> {
        Ok(match self {
            Made::Open(file) => rustix::fs::futimens(file, times),
            Made::Node(node) => rustix::fs::utimensat(node, "", times, AtFlags::EMPTY_PATH),
        }?)
    }
}

/// What has extended attributes. By its name only if it cannot be open: that may be another's by now.
#[derive(Clone, Copy)]
pub enum Holder<'a> {
    Open(&'a File),
    Named(&'a Path),
}

impl Holder<'_> {
    fn list(self, names: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Holder::Open(file) => rustix::fs::flistxattr(file, names),
            Holder::Named(path) => rustix::fs::llistxattr(path, names),
        }
    }

    fn get(self, name: &CStr, value: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Holder::Open(file) => rustix::fs::fgetxattr(file, name, value),
            Holder::Named(path) => rustix::fs::lgetxattr(path, name, value),
        }
    }

    fn set(self, name: &CStr, value: &[u8]) -> rustix::io::Result<()> {
        match self {
            Holder::Open(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Holder::Named(path) => rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()),
        }
    }

    fn remove(self, name: &CStr) -> rustix::io::Result<()> {
        match self {
            Holder::Open(file) => rustix::fs::fremovexattr(file, name),
            Holder::Named(path) => rustix::fs::lremovexattr(path, name),
        }
    }

    fn has(self, name: &CStr) -> rustix::io::Result<bool> {
        match self.get(name, &mut []) {
            Ok(_) => Ok(true),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Leaves it no list, be it its directory's or one that was there before. Most often there is none, and
    /// nothing is changed.
    fn remove_list(self, name: &CStr) -> rustix::io::Result<()> {
        if !self.has(name)? {
            return Ok(());
        }
        match self.remove(name) {
            // Gone meanwhile.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            removed => removed,
        }
    }

    /// All of them; none where there can be none.
    fn all(self) -> io::Result<Vec<(CString, Vec<u8>)>> {
        let mut found = Vec::new();
        let mut names = vec![0u8; 64 << 10];
        let len = match self.list(&mut names) {
            Err(Errno::OPNOTSUPP) => return Ok(found),
            len => len?,
        };
        for name in names[..len]
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty() && !name.starts_with(OF_XFS))
        {
            let name = CString::new(name)?;
            let mut value = vec![0u8; 64 << 10];
            match self.get(&name, &mut value) {
                Ok(len) => {
                    value.truncate(len);
                    found.push((name, value));
                }
                // Gone meanwhile, or not to be seen.
                Err(Errno::NODATA | Errno::PERM | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Access control lists last: they may take the right to set others.
        found.sort_by_key(|(name, _)| name.to_bytes().starts_with(b"system."));
        Ok(found)
    }
}

/// What is copied, to be asked for its attributes, and what failures call it.
#[derive(Clone, Copy)]
pub struct Original<'a> {
    pub holder: Holder<'a>,
    pub path: &'a Path,
}

/// An owner could not be kept. Who may give files to others wants to know that, as with cp.
fn lost_owner(error: io::Error, path: &Path) -> Outcome {
    match rustix::process::geteuid().is_root() {
        true => Err(error).context("keep the owner of", path),
        false => Ok(()),
    }
}

/// Gives copies what their sources have.
pub struct Attributes {
    /// With -a, extended attributes as well.
    extended: bool,
    /// It was said that those are not kept.
    lost: bool,
}

impl Attributes {
    pub fn new(extended: bool) -> Attributes {
        Attributes {
            extended,
            lost: false,
        }
    }

    /// Gives `made`, which is the copy of `from` at `path`, what the source has.
    pub fn preserve(
        &mut self,
        made: &Made,
        from: Original,
        path: &Path,
        about: &Metadata,
        progress: &Progress,
    ) -> Outcome {
        // Changing the owner clears set-user-id bits and capabilities, so the rest comes after; the
        // mode is a part of the access control list.
        let mut mode = about.mode() & 0o7777;
        let mut owned = Ok(());
        match made.set_owner(Some(about.uid()), about.gid()) {
            Ok(()) => {}
            // The latter if this is a container that does not know the owner.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
                ) =>
            {
                // Another's rights are not given to a file of ours.
                mode &= 0o1777;
                let _ = made.set_owner(None, about.gid());
                owned = lost_owner(error, path);
            }
            Err(error) => return Err(error).context("set the owner of", path),
        }
        let kept = match self.extended {
            true => self.extended(from, made.holder(path), path, progress),
            false => without_lists(made, path, about.is_dir()),
        };
        if !self.extended || kept.is_err() {
            mode = mode_without_list(from.holder, mode);
        }
        // Of a list that stays the group bits are what everybody in it may have.
        if kept.is_err() && made.holder(path).has(LIST) != Ok(false) {
            mode &= !0o070;
        }
        made.set_mode(mode).context("set the mode of", path)?;
        let timed = made.set_times(&times(about));
        owned.and(kept).and(timed.context("set the times of", path))
    }

    /// As [`Attributes::preserve`], for a symbolic link.
    pub fn preserve_link(
        &mut self,
        from: &Path,
        to: &Path,
        about: &Metadata,
        progress: &Progress,
    ) -> Outcome {
        let (cwd, no_follow) = (rustix::fs::CWD, AtFlags::SYMLINK_NOFOLLOW);
        let (user, group) = (Uid::from_raw(about.uid()), Gid::from_raw(about.gid()));
        let owned = match rustix::fs::chownat(cwd, to, Some(user), Some(group), no_follow) {
            Err(error @ (Errno::PERM | Errno::INVAL)) => lost_owner(error.into(), to),
            // As ever: a filesystem may have no owners of links.
            _ => Ok(()),
        };
        let [holder, copy] = [from, to].map(Holder::Named);
        self.extended(Original { holder, path: from }, copy, to, progress)?;
        let timed = rustix::fs::utimensat(cwd, to, &times(about), no_follow);
        owned.and(timed.map_err(Into::into).context("set the times of", to))
    }

    /// With -a, gives `to` the extended attributes of `from`, in which access control lists are, and no
    /// lists that its directory gave it. As with cp, where they cannot be kept that is a failure only if it is
    /// a list.
    fn extended(
        &mut self,
        from: Original,
        copy: Holder,
        to: &Path,
        progress: &Progress,
    ) -> Outcome {
        if !self.extended {
            return Ok(());
        }
        let wanted = from.holder.all();
        let wanted = wanted.context("read the attributes of", from.path)?;
        let present = copy.all().context("read the attributes of", to)?;
        let mut lost = None;
        for (name, value) in &wanted {
            if !present.contains(&(name.clone(), value.clone())) {
                let set = copy.set(name, value);
                lost = worse(lost, set.err().map(|error| (&**name, error)));
            }
        }
        for (name, _) in &present {
            let list = name.to_bytes().starts_with(LISTS);
            if list && !wanted.iter().any(|(other, _)| other == name) {
                let removed = copy.remove(name);
                lost = worse(lost, removed.err().map(|error| (&**name, error)));
            }
        }
        match lost {
            None => Ok(()),
            Some(failure @ (name, error)) if may_be_lost(failure) => {
                if !self.lost {
                    self.lost = true;
                    let reason = reason(&error.into());
                    progress.aside(|| {
                        say(format_args!(
                            "pdio cp: {} does not keep {}: {reason}; nor may others",
                            quoted(to),
                            name.to_string_lossy()
                        ));
                    });
                }
                Ok(())
            }
            Some((name, error)) => {
                Err(error.into()).context(&format!("set {} of", name.to_string_lossy()), to)
            }
        }
    }
}

/// Leaves what was made without lists, as cp -p does for a source that has none. Until it has its mode nobody
/// but the owner has anything by them: it was made with no rights for the group, which are the lists' mask.
fn without_lists(made: &Made, path: &Path, directory: bool) -> Outcome {
    let lists = [Some(LIST), directory.then_some(DEFAULT_LIST)];
    for name in lists.into_iter().flatten() {
        let removed = made.holder(path).remove_list(name).map_err(Into::into);
        removed.context(&format!("remove {} of", name.to_string_lossy()), path)?;
    }
    Ok(())
}

/// An attribute that could not be set or removed, and why.
type Failure<'a> = (&'a CStr, Errno);

/// Returns true if an attribute cannot be kept here at all, and a copy without it gives nobody other rights.
fn may_be_lost((name, error): Failure) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::PERM) && !name.to_bytes().starts_with(LISTS)
}

/// The first of two failures, unless only the second one is to be told of as such.
fn worse<'a>(first: Option<Failure<'a>>, second: Option<Failure<'a>>) -> Option<Failure<'a>> {
    match (first, second) {
        (Some(one), Some(other)) if may_be_lost(one) && !may_be_lost(other) => second,
        (None, _) => second,
        _ => first,
    }
}

/// The mode for a copy of `from` that does not get its access control list. In a mode with a list the group
/// bits are the list's mask, the most that anybody in it has; what the group has is in the list.
pub fn mode_without_list(from: Holder, mode: u32) -> u32 {
    if mode & 0o070 == 0 {
        return mode;
    }
    let mut list = vec![0u8; 512];
    let mut found = from.get(LIST, &mut list);
    if found == Err(Errno::RANGE) {
        list.resize(64 << 10, 0);
        found = from.get(LIST, &mut list);
    }
    let len = match found {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return mode,
        // The group gets nothing if that cannot be told.
        len => len.unwrap_or(0),
    };
    // A version, and for each entry whom it is about, the rights, and a number.
    let mut entries = list[..len].get(4..).unwrap_or_default().chunks_exact(8);
    let group = entries.find(|entry| entry[..2] == [4, 0]);
    let rights = group.map_or(0, |entry| u32::from(entry[2]) << 3);
    mode & !0o070 | mode & rights & 0o070
}

fn times(about: &Metadata) -> rustix::fs::Timestamps {
    let time = |seconds, nanoseconds: i64| rustix::fs::Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds as _,
    };
    rustix::fs::Timestamps {
        last_access: time(about.atime(), about.atime_nsec()),
        last_modification: time(about.mtime(), about.mtime_nsec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_outweighs_what_cannot_be_kept() {
        let found = |errors: &[Errno]| {
            errors
                .iter()
                .fold(None, |lost, &error| worse(lost, Some((c"user.x", error))))
                .map(|(_, error)| error)
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[Errno::PERM, Errno::OPNOTSUPP]), Some(Errno::PERM));
        assert_eq!(found(&[Errno::PERM, Errno::NOSPC]), Some(Errno::NOSPC));
        assert_eq!(found(&[Errno::NOSPC, Errno::PERM]), Some(Errno::NOSPC));
        assert_eq!(found(&[Errno::NOSPC, Errno::IO]), Some(Errno::NOSPC));
        let [other, list] =
            [c"user.x", c"system.posix_acl_access"].map(|n| Some((n, Errno::OPNOTSUPP)));
        assert_eq!(worse(other, list), list);
    }
}
