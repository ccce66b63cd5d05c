//! Runs a program for WASI: `niello-wasi PROGRAM ARGUMENTS…`. What `cargo xtask machines` hands to Cargo
//! as a runner.

use std::error::Error;
use std::process::ExitCode;

use wasmi::{Engine, Linker, Module, Store};
use wasmi_wasi::WasiCtxBuilder;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let program = args.first().ok_or("usage: niello-wasi PROGRAM ARGUMENTS…")?;
    let code = std::fs::read(program).map_err(|error| format!("{program}: {error}"))?;
    let wasi = WasiCtxBuilder::new().inherit_stdio().args(&args)?.build();
    let engine = Engine::default();
    let module = Module::new(&engine, &code[..]);
    let module = module.map_err(|error| format!("{program} is no WebAssembly: {error}"))?;
    let mut store = Store::new(&engine, wasi);
    let mut linker = Linker::new(&engine);
    wasmi_wasi::add_to_linker(&mut linker, |wasi| wasi)?;
    let instance = linker.instantiate_and_start(&mut store, &module)?;
    let start = instance.get_typed_func::<(), ()>(&store, "_start")?;
    match start.call(&mut store, ()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // What `std::process::exit` is there.
        Err(error) => match error.i32_exit_status() {
            Some(status) => Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))),
            None => Err(error.into()),
        },
    }
}
