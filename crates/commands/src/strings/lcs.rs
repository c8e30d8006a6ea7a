//! LCS: the longest common subsequence of two strings, by dynamic programming.
//!
//! Redis keeps a table of lengths, four bytes a cell, and refuses to build one larger than proto-max-bulk-len. Here a
//! cell is the one bit that walking back needs, so the table takes a 32nd of that; the limit stays, since the time that
//! it bounds is the same.

use std::borrow::Cow;

use store::keyspace::Key;
use store::table::Ref;

use crate::Call;
use crate::error::{Error, Outcome};

/// Bytes of a cell in Redis's table, which its limit counts.
const REDIS_CELL_BYTES: u128 = 4;
/// Redis's lengths have 32 bits; a string must be shorter than this.
const LEN_LIMIT: usize = u32::MAX as usize - 1;

#[derive(Default)]
struct LcsOptions {
    len: bool,
    idx: bool,
    with_match_len: bool,
    min_match_len: usize,
}

/// Equal runs of both strings, of which each is part of the subsequence.
struct CommonRun {
    a: usize,
    b: usize,
    len: usize,
}

fn options(call: &Call<'_, '_, '_>) -> Result<LcsOptions, Error> {
    let mut options = LcsOptions::default();
    let mut index = 3;
    while index < call.len() {
        if call.is(index, "idx") {
            options.idx = true;
        } else if call.is(index, "len") {
            options.len = true;
        } else if call.is(index, "withmatchlen") {
            options.with_match_len = true;
        } else if call.is(index, "minmatchlen") && index + 1 < call.len() {
            index += 1;
            options.min_match_len = usize::try_from(call.int(index)?).unwrap_or(0);
        } else {
            return Err(Error::SYNTAX);
        }
        index += 1;
    }
    if options.idx && options.len {
        return Err(Error::new("ERR If you want both the length and indexes, please just use IDX."));
    }
    Ok(options)
}

fn string<'d>(call: &'d Call<'_, '_, '_>, key: Key<'_>) -> Result<Cow<'d, [u8]>, Error> {
    let view = call.db.peek(key).map(Ref::into_view);
    let not_strings = |_| Error::new("ERR The specified keys must contain string values");
    view.map_or(Ok(Cow::Borrowed(&b""[..])), |view| super::text(view).map_err(not_strings))
}

pub(super) fn lcs(call: &mut Call<'_, '_, '_>) -> Outcome {
    let keys = [call.key(1), call.key(2)];
    // For the access; then both can be looked at together.
    for key in keys {
        call.db.get(key);
    }
    let (a, b) = (string(call, keys[0])?, string(call, keys[1])?);
    let options = options(call)?;
    check_size(a.len(), b.len(), call.rules.string_bytes_max)?;
    if options.len {
        let len = Table::new(&a, &b, false).len;
        drop((a, b));
        call.reply.count(len);
        return Ok(());
    }
    let table = Table::new(&a, &b, true);
    let runs = table.runs(&a, &b);
    if options.idx {
        drop((a, b));
        reply_runs(call, &runs, table.len, &options);
    } else {
        let text = runs.iter().rev().flat_map(|run| &a[run.a..][..run.len]).copied().collect::<Vec<u8>>();
        drop((a, b));
        call.reply.bulk(text);
    }
    Ok(())
}

fn check_size(a: usize, b: usize, bytes_max: usize) -> Outcome {
    if a >= LEN_LIMIT || b >= LEN_LIMIT {
        return Err(Error::new("ERR String too long for LCS"));
    }
    if (a as u128 + 1) * (b as u128 + 1) * REDIS_CELL_BYTES > bytes_max as u128 {
        return Err(Error::new("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
    }
    Ok(())
}

fn reply_runs(call: &mut Call<'_, '_, '_>, runs: &[CommonRun], len: usize, options: &LcsOptions) {
    let reply = &mut call.reply;
    let shown = || runs.iter().filter(|run| run.len >= options.min_match_len);
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(shown().count());
    for run in shown() {
        reply.array(if options.with_match_len { 3 } else { 2 });
        for start in [run.a, run.b] {
            reply.array(2);
            reply.count(start);
            reply.count(start + run.len - 1);
        }
        if options.with_match_len {
            reply.count(run.len);
        }
    }
    reply.bulk(b"len");
    reply.count(len);
}

/// For every pair of prefixes, whether the subsequence is longer without the last byte of the first string than without
/// that of the second.
struct Table {
    /// A row of bits for each byte of the first string, a bit for each of the second.
    bits: Vec<u64>,
    row_words: usize,
    /// The length of the whole subsequence.
    len: usize,
}

impl Table {
    /// Fills the table; without the bits, if only the length is wanted.
    fn new(a: &[u8], b: &[u8], with_bits: bool) -> Table {
        let row_words = b.len().div_ceil(64);
        let mut bits = vec![0; if with_bits { row_words * a.len() } else { 0 }];
        // The row's lengths, by the prefix of `b`; the row above is overwritten from the left.
        let mut lens = vec![0u32; b.len() + 1];
        for (i, &byte) in a.iter().enumerate() {
            let row = bits.get_mut(i * row_words..(i + 1) * row_words).unwrap_or_default();
            fill_row(byte, b, &mut lens, row);
        }
        Table { bits, row_words, len: lens.last().map_or(0, |&len| len as usize) }
    }

    fn up_is_longer(&self, i: usize, j: usize) -> bool {
        self.bits[i * self.row_words + j / 64] >> (j % 64) & 1 == 1
    }

    /// The runs of a longest subsequence, the last first. Where there are several such, Redis's choice.
    fn runs(&self, a: &[u8], b: &[u8]) -> Vec<CommonRun> {
        let mut runs: Vec<CommonRun> = Vec::new();
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                match runs.last_mut() {
                    Some(run) if run.a == i + 1 && run.b == j + 1 => (run.a, run.b, run.len) = (i, j, run.len + 1),
                    _ => runs.push(CommonRun { a: i, b: j, len: 1 }),
                }
            } else if self.up_is_longer(i - 1, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        runs
    }
}

/// Computes the lengths of the next row from those of the one above, and notes the bits, if there is room for them.
fn fill_row(byte: u8, b: &[u8], lens: &mut [u32], row: &mut [u64]) {
    let (mut diagonal, mut left) = (0, 0);
    for (j, (&other, len)) in b.iter().zip(&mut lens[1..]).enumerate() {
        let up = *len;
        if byte == other {
            left = diagonal + 1;
        } else {
            if up > left
                && let Some(word) = row.get_mut(j / 64)
            {
                *word |= 1 << (j % 64);
            }
            left = left.max(up);
        }
        diagonal = up;
        *len = left;
    }
}
