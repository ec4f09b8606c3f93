// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memory cgroup around the measured process, so that its page cache is recycled rather than
//! taken fresh: on a machine with much free memory, and in a virtual machine above all, the first
//! use of a page costs more than everything else that is measured.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::report::{reason, shown};

/// A cgroup of ours; removed when dropped.
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes one with a limit in bytes.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn new(limit: u64) -> Result<Cgroup, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|e| reason(&e))?;
        let mut reasons = Vec::new();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, at, kind, options, ..] = fields[..] else {
                continue;
            };
            let at = Path::new(at);
            let made = match kind {
                "cgroup" if options.split(',').any(|o| o == "memory") => {
                    Cgroup::make(at, "memory.limit_in_bytes", limit)
                }
                "cgroup2" => {
                    // Fails if it is so already, or is not permitted; the limit will tell.
                    let _ = fs::write(at.join("cgroup.subtree_control"), "+memory");
                    Cgroup::make(at, "memory.max", limit)
                }
                _ => continue,
            };
            match made {
                Ok(cgroup) => return Ok(cgroup),
                Err(error) => reasons.push(format!("{}: {}", shown(at), reason(&error))),
            }
        }
        Err(match reasons.is_empty() {
            true => "no memory cgroups are mounted".into(),
            false => reasons.join("; "),
        })
    }

    fn make(parent: &Path, limit_file: &str, limit: u64) -> io::Result<Cgroup> {
        let path = parent.join(format!("pdio-bench-{}", std::process::id()));
        fs::create_dir(&path)?;
        let cgroup = Cgroup { path };
        // Not `fs::write`, which would create it on something that is no cgroup.
        let limit_path = cgroup.path.join(limit_file);
        let mut file = fs::File::options().write(true).open(limit_path)?;
        io::Write::write_all(&mut file, limit.to_string().as_bytes())?;
        Ok(cgroup)
    }

    /// The file a process enters by.
    pub fn entry(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}
