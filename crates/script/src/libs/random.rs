//! `math.random` and `math.randomseed`.
//!
//! The generator is POSIX's `lrand48`, with the same numbers as in Redis: a seed gives the same sequence everywhere.
//! Without a seed, scripts share one sequence. With a seed, a script has a sequence of its own until it ends. (In
//! Redis, one script's seed applies to all scripts.)

use std::ffi::c_int;

use crate::libs::per_script::{self, PerScript};
use crate::libs::support::check_int;
use crate::native;
use crate::state::{CFunction, LuaState, Raise};

/// The generator's multiplier and increment, and the lowest 16 bits of a seeded state, from POSIX's `srand48`.
const MULTIPLIER: u64 = 0x5_deec_e66d;
const INCREMENT: u64 = 0xb;
const SEED_LOW: u64 = 0x330e;
/// The generator's state without a seed, from POSIX, too.
const UNSEEDED: u64 = 0x1234_abcd_330e;

/// The 48 bits of the generator.
#[derive(Clone, Copy)]
struct Generator(u64);

impl Generator {
    fn seeded(seed: c_int) -> Generator {
        Generator(u64::from(seed as u32) << 16 | SEED_LOW)
    }

    /// Returns the next 31 bits.
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & ((1 << 48) - 1);
        (self.0 >> 17) as u32
    }

    /// Returns a number from 0 to below 1.
    fn fraction(&mut self) -> f64 {
        const MAX: u32 = i32::MAX as u32;
        f64::from(self.next() % MAX) / f64::from(MAX)
    }
}

/// The state of the functions.
#[derive(Clone, Copy)]
struct Generators {
    shared: Generator,
    /// A seeded generator, and its run.
    own: Option<(u64, Generator)>,
}

/// Replaces two functions of the global `math`.
pub fn open(state: &mut LuaState) -> Result<(), Raise> {
    state.push_globals();
    state.raw_get_named(-1, "math");
    let library = state.top();
    per_script::push(state, PerScript::lasting(Generators { shared: Generator(UNSEEDED), own: None }));
    let functions: [(&str, CFunction); 2] = [("random", native!(random)), ("randomseed", native!(seed))];
    for (name, entry) in functions {
        state.push_copy(library + 1);
        state.push_closure(entry, 1);
        state.raw_set_named(library, name);
    }
    state.pop(3);
    Ok(())
}

fn generators(state: &mut LuaState) -> &mut Generators {
    // SAFETY: `open` creates both functions with the generators as their upvalue.
    unsafe { per_script::upvalue(state) }
}

/// Returns the generator of the running script.
fn generator(state: &mut LuaState) -> &mut Generator {
    let run = state.context().run;
    match generators(state) {
        Generators { own: Some((of_run, own)), .. } if *of_run == run => own,
        Generators { shared, .. } => shared,
    }
}

fn random(state: &mut LuaState) -> Result<c_int, Raise> {
    let fraction = generator(state).fraction();
    let (low, high, arg) = match state.top() {
        0 => {
            state.push_number(fraction);
            return Ok(1);
        }
        1 => (1, check_int(state, 1)?, 1),
        2 => (check_int(state, 1)?, check_int(state, 2)?, 2),
        _ => return Err(state.error("wrong number of arguments")),
    };
    if low > high {
        return Err(state.argument_error(arg, "interval is empty"));
    }
    let width = f64::from(high.wrapping_sub(low).wrapping_add(1));
    state.push_number((fraction * width).floor() + f64::from(low));
    Ok(1)
}

fn seed(state: &mut LuaState) -> Result<c_int, Raise> {
    let seed = check_int(state, 1)?;
    let run = state.context().run;
    generators(state).own = Some((run, Generator::seeded(seed)));
    Ok(0)
}
