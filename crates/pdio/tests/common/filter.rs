// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that fail as they do elsewhere, by a filter (seccomp).
#![allow(dead_code, reason = "each test uses a part")]

use std::io;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_ABOVE: u16 = 0x25;
const RETURN: u16 = 0x06;
/// Where a filter finds the number of the call, and the lower half of its first argument.
const NUMBER: u32 = 0;
const FIRST: u32 = if cfg!(target_endian = "little") {
    16
} else {
    20
};

/// A step of a filter; jumps pass over so many steps.
fn step(code: u16, k: u32, jump_true: u8, jump_false: u8) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: jump_true,
        jf: jump_false,
        k,
    }
}

fn install(filter: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program lives through the calls.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    match done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// From now on, in this thread and what it starts, this system call fails.
pub fn refuse(call: libc::c_long, error: i32) -> io::Result<()> {
    at(call, libc::SECCOMP_RET_ERRNO | error as u32)
}

/// From now on this system call ends the process, if this thread or one that it starts makes it.
pub fn end_at(call: libc::c_long) -> io::Result<()> {
    at(call, libc::SECCOMP_RET_KILL_PROCESS)
}

fn at(call: libc::c_long, action: u32) -> io::Result<()> {
    install(&mut [
        step(LOAD, NUMBER, 0, 0),
        step(JUMP_EQUAL, call as u32, 0, 1),
        step(RETURN, action, 0, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ])
}

/// From now on, in this thread and what it starts, this system call of this descriptor fails.
pub fn refuse_of(call: libc::c_long, fd: i32, error: i32) -> io::Result<()> {
    refuse_where(call, JUMP_EQUAL, fd, error)
}

/// From now on, in this thread and what it starts, `close` of every descriptor above this one fails.
pub fn refuse_close_above(fd: i32, error: i32) -> io::Result<()> {
    refuse_where(libc::SYS_close, JUMP_ABOVE, fd, error)
}

fn refuse_where(call: libc::c_long, which: u16, fd: i32, error: i32) -> io::Result<()> {
    install(&mut [
        step(LOAD, NUMBER, 0, 0),
        step(JUMP_EQUAL, call as u32, 0, 3),
        step(LOAD, FIRST, 0, 0),
        step(which, fd as u32, 0, 1),
        step(RETURN, libc::SECCOMP_RET_ERRNO | error as u32, 0, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ])
}
