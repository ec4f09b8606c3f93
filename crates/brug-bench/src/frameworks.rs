// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code of others that grows buffers: Arrow (figures 10 and 11) and Wasmtime (figure 12).

use arrow_buffer::MutableBuffer;

use crate::collections::Push;
use crate::Record;

#[derive(clap::Args)]
pub(crate) struct Arrow {
    #[command(flatten)]
    push: Push,
}

impl Arrow {
    pub(crate) fn run(&self) -> Result<Record, String> {
        self.push.repeat(
            || MutableBuffer::new(0),
            |buffer, n| buffer.push(n),
            |buffer, page| buffer.extend_from_slice(page),
            MutableBuffer::as_slice,
        )
    }
}

#[cfg(feature = "wasmtime")]
pub(crate) use link::Link;

#[cfg(feature = "wasmtime")]
mod link {
    use std::time::Instant;

    use wasmtime::{Engine, Linker, Module, Result, Store};

    use crate::{Checksum, Record};

    /// Exports a memory, a pointer that moves on and a function that writes there.
    const LIBRARY: &str = r#"(module
        (import "host" "f0" (func $host (param i32) (result i32)))
        (memory (export "memory") 1)
        (global (export "next") (mut i32) (i32.const 64))
        (func (export "double") (param i32) (result i32)
            local.get 0
            call $host
            i32.const 2
            i32.mul))"#;

    /// Uses all of the library.
    const PROGRAM: &str = r#"(module
        (import "library" "double" (func $double (param i32) (result i32)))
        (import "library" "memory" (memory 1))
        (import "library" "next" (global $next (mut i32)))
        (func (export "run") (param i32) (result i32)
            global.get $next
            local.get 0
            call $double
            i32.store
            global.get $next
            i32.load))"#;

    #[derive(clap::Args)]
    pub(crate) struct Link {
        /// How often to link.
        #[arg(long)]
        links: u32,
        /// Host functions that the linker is given.
        #[arg(long, default_value_t = 64)]
        functions: u32,
    }

    impl Link {
        pub(crate) fn run(&self) -> std::result::Result<Record, String> {
            self.link().map_err(|error| format!("{error:?}"))
        }

        fn link(&self) -> Result<Record> {
            let engine = Engine::default();
            let library = Module::new(&engine, LIBRARY)?;
            let program = Module::new(&engine, PROGRAM)?;
            let mut checksum = Checksum::new();
            let begin = Instant::now();
            for number in 0..self.links {
                let mut linker = Linker::new(&engine);
                for n in 0..self.functions.max(1) {
                    linker.func_wrap("host", &format!("f{n}"), |x: i32| x + 1)?;
                }
                let mut store = Store::new(&engine, ());
                let instance = linker.instantiate(&mut store, &library)?;
                linker.instance(&mut store, "library", instance)?;
                let instance = linker.instantiate(&mut store, &program)?;
                let run = instance.get_typed_func::<i32, i32>(&mut store, "run")?;
                checksum.add(run.call(&mut store, number as i32)? as u64);
            }
            Ok(Record {
                seconds: begin.elapsed().as_secs_f64(),
                operations: u64::from(self.links),
                checksum: checksum.text(),
                ..Record::default()
            })
        }
    }
}
