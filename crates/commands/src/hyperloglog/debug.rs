//! PFDEBUG and PFSELFTEST.

use store::entry::View;
use store::random::Random;
use store::six_bits;

use super::dense::{self, REGISTERS, REGISTERS_BYTES};
use super::hash::Mark;
use super::value::{Draft, Encoding, HEADER_BYTES, HyperLogLog};
use super::{mark_raw, overwrite, sparse};
use crate::Call;
use crate::error::{Error, Outcome, shown};

/// Subcommands of PFDEBUG on a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DebugAction {
    Encoding,
    Decode,
    GetRegisters,
    ToDense,
}

impl DebugAction {
    fn parse(word: &[u8]) -> Result<DebugAction, Error> {
        let words = [
            ("encoding", DebugAction::Encoding),
            ("decode", DebugAction::Decode),
            ("getreg", DebugAction::GetRegisters),
            ("todense", DebugAction::ToDense),
        ];
        let found = words.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, action)| *action).ok_or_else(|| {
            Error::quoting([b"ERR Unknown PFDEBUG subcommand '", shown(word, usize::MAX), b"'"].concat())
        })
    }
}

pub(super) fn pfdebug(call: &mut Call<'_, '_, '_>) -> Outcome {
    // PFDEBUG SIMD concerns the whole server; its argument is in the key's position.
    if call.arg(1).eq_ignore_ascii_case(b"simd") {
        return set_vectors(call);
    }
    let action = DebugAction::parse(call.arg(1));
    let Some(mut entry) = call.db.get_mut(call.key(2)) else {
        return Err(Error::fixed("ERR The specified key does not exist"));
    };
    HyperLogLog::of(entry.view())?;
    mark_raw(&mut entry);
    let found = HyperLogLog::of(entry.view())?;
    let is_sparse = matches!(found.encoding, Encoding::Sparse(_));
    match (action?, found.encoding) {
        (DebugAction::Encoding, Encoding::Sparse(_)) => call.reply.simple("sparse"),
        (DebugAction::Encoding, Encoding::Dense(_)) => call.reply.simple("dense"),
        (DebugAction::Decode, Encoding::Sparse(opcodes)) => call.reply.bulk(sparse::decode(opcodes)),
        (DebugAction::Decode, Encoding::Dense(_)) => return Err(Error::fixed("ERR HLL encoding is not sparse")),
        (action, _) => {
            let mut draft = Draft::of(found.bytes.to_vec());
            if is_sparse {
                draft.make_dense()?;
                overwrite(&mut entry, &draft.bytes);
                // As in Redis, the conversion is recorded but doesn't notify watchers.
                call.effects.count(1);
            }
            if action == DebugAction::ToDense {
                call.reply.int(i64::from(is_sparse));
            } else {
                call.reply.array(REGISTERS);
                let packed = &draft.bytes[HEADER_BYTES..];
                (0..REGISTERS).for_each(|register| call.reply.int(i64::from(dense::get(packed, register))));
            }
        }
    }
    Ok(())
}

/// Runs PFDEBUG SIMD, as in Redis 8 and Valkey 9.
fn set_vectors(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (uses, reply) = match call.arg(2) {
        on if on.eq_ignore_ascii_case(b"on") => (true, "enabled"),
        off if off.eq_ignore_ascii_case(b"off") => (false, "disabled"),
        _ => return Err(Error::fixed("ERR Argument must be ON or OFF")),
    };
    six_bits::use_vectors(uses);
    call.reply.simple(reply);
    Ok(())
}

pub(super) fn pfselftest(call: &mut Call<'_, '_, '_>) -> Outcome {
    check_registers(call.random)?;
    check_estimates(call.random.next(), call.rules.hll_sparse_bytes_max)?;
    call.reply.ok();
    Ok(())
}

/// Checks that registers keep their values, also after packing.
fn check_registers(random: &mut Random) -> Outcome {
    let mut packed = [0; REGISTERS_BYTES];
    let mut expected = [0; REGISTERS];
    for (register, value) in expected.iter_mut().enumerate() {
        *value = random.below(64) as u8;
        dense::set(&mut packed, register, *value);
    }
    let mut merged = [0; REGISTERS];
    dense::merge(&mut merged, &packed);
    for register in 0..REGISTERS {
        let (is, should) = (dense::get(&packed, register), expected[register]);
        if is != should || merged[register] != should {
            return Err(Error::new(format!("TESTFAILED Register {register} should be {should} but is {is}")));
        }
    }
    Ok(())
}

/// Checks that both forms agree, and that the estimates are accurate enough.
fn check_estimates(seed: u64, sparse_bytes_max: usize) -> Outcome {
    /// Number of elements to add.
    const ELEMENTS: u64 = 100_000;
    let (mut sparse, mut dense) = (Draft::empty(), Draft::empty());
    dense.make_dense()?;
    let mut checkpoint = 1;
    for element in 1..=ELEMENTS {
        let mark = Mark::of(&(element ^ seed).to_le_bytes());
        for draft in [&mut sparse, &mut dense] {
            draft.raise(mark, sparse_bytes_max)?;
        }
        if element == checkpoint {
            check_estimate(element, &sparse, &dense)?;
            checkpoint *= 10;
        }
    }
    Ok(())
}

fn check_estimate(elements: u64, sparse: &Draft, packed: &Draft) -> Outcome {
    let count = |draft: &Draft| Ok::<u64, Error>(HyperLogLog::of(View::Bytes(&draft.bytes))?.count()?);
    let (estimate, other) = (count(packed)?, count(sparse)?);
    if estimate != other {
        return Err(Error::fixed("TESTFAILED dense/sparse disagree"));
    }
    // The tolerance is six standard errors.
    let error_max = (6.0 * 1.04 / (REGISTERS as f64).sqrt() * elements as f64).ceil() as u64;
    let error = estimate.abs_diff(elements);
    if error > error_max {
        return Err(Error::new(format!("TESTFAILED Too big error. card:{elements} abserr:{error}")));
    }
    Ok(())
}
