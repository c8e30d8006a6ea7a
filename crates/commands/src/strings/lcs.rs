//! LCS: the longest common subsequence of two strings, by dynamic programming.
//!
//! Redis keeps a table of lengths with four bytes per cell, and refuses to build one larger than proto-max-bulk-len.
//! Here a cell is one bit: the length grows by at most one from a cell to its right neighbour, and the bit is set if it
//! does. One addition computes 64 cells of a row from the row above (Hyyrö, "Bit-parallel LCS-length computation
//! revisited", 2004). The bits are sufficient for walking back. Redis's limit still applies, so both refuse the same
//! inputs.

use std::borrow::Cow;

use store::keyspace::Key;
use store::table::Ref;

use crate::Call;
use crate::error::{Error, Outcome};

/// Size of a cell in Redis's table, on which Redis's limit is based.
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

/// Equal runs of both strings that are part of the subsequence.
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
    // Counts as an access; afterwards both strings can be borrowed together.
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

/// For each pair of prefixes, one bit: set if removing the last byte of the second prefix makes the subsequence
/// shorter.
struct Table {
    /// One row of bits for each byte of the first string, one bit for each byte of the second.
    bits: Vec<u64>,
    row_words: usize,
    /// Length of the whole subsequence.
    len: usize,
}

impl Table {
    /// Fills the table. Drops the bits if only the length is needed.
    fn new(a: &[u8], b: &[u8], with_bits: bool) -> Table {
        let row_words = b.len().div_ceil(64);
        let places = Places::new(a, b, row_words);
        let mut bits = Vec::with_capacity(if with_bits { row_words * a.len() } else { 0 });
        // An inverted row; nothing grows before the first row.
        let mut level = vec![u64::MAX; row_words];
        for &byte in a {
            next_row(&mut level, places.of(byte));
            if with_bits {
                bits.extend(level.iter().map(|word| !word));
            }
        }
        // Bits beyond the second string stay set.
        Table { bits, row_words, len: level.iter().map(|word| word.count_zeros() as usize).sum() }
    }

    /// Compares the two ways back from differing bytes `i` of the first and `j` of the second string. True if dropping
    /// byte `j` makes the longest common subsequence shorter; dropping byte `i` then doesn't.
    fn up_is_longer(&self, i: usize, j: usize) -> bool {
        self.bits[i * self.row_words + j / 64] >> (j % 64) & 1 == 1
    }

    /// Returns the runs of a longest subsequence, the last run first. Among several subsequences, it chooses as Redis
    /// does.
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

/// Positions of bytes in the second string: one row of bits for each distinct byte of the first string.
struct Places {
    /// Row number of each byte value plus one; 0 for bytes without a row.
    rows: [usize; 256],
    bits: Vec<u64>,
    row_words: usize,
}

impl Places {
    fn new(a: &[u8], b: &[u8], row_words: usize) -> Places {
        let (mut rows, mut count) = ([0; 256], 0);
        for &byte in a {
            let row = &mut rows[usize::from(byte)];
            if *row == 0 {
                count += 1;
                *row = count;
            }
        }
        let mut bits = vec![0; count * row_words];
        for (j, &byte) in b.iter().enumerate() {
            if let Some(row) = rows[usize::from(byte)].checked_sub(1) {
                bits[row * row_words + j / 64] |= 1 << (j % 64);
            }
        }
        Places { rows, bits, row_words }
    }

    /// The row of a byte that occurs in the first string.
    fn of(&self, byte: u8) -> &[u64] {
        &self.bits[(self.rows[usize::from(byte)] - 1) * self.row_words..][..self.row_words]
    }
}

/// Computes the next inverted row from the row above and the positions of the row's byte. Between two steps (zero bits)
/// the first match takes the place of the later step: the addition's carry moves it.
fn next_row(level: &mut [u64], places: &[u64]) {
    let mut carry = false;
    for (word, &found) in level.iter_mut().zip(places) {
        let (sum, first) = word.overflowing_add(*word & found);
        let (sum, second) = sum.overflowing_add(u64::from(carry));
        *word = sum | (*word & !found);
        carry = first | second;
    }
}
