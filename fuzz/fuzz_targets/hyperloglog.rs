//! HyperLogLogs: for a string of any bytes, the commands answer, change it correctly or refuse it, and never panic.
#![no_main]

use commands::testing::Bench;
use libfuzzer_sys::fuzz_target;

/// The header of a sparse HyperLogLog with an unknown estimate.
const SPARSE: &[u8] = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80";

/// The first byte selects the meaning of the rest (a whole value, or the opcodes of a sparse one) and the size limit of
/// a sparse one.
fn value(data: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (&first, rest) = data.split_first()?;
    let bytes = if first & 1 == 0 { rest.to_vec() } else { [SPARSE, rest].concat() };
    Some((bytes, usize::from(first >> 1) * 32))
}

fuzz_target!(|data: &[u8]| {
    let Some((bytes, sparse_bytes_max)) = value(data) else { return };
    let mut bench = Bench::default();
    bench.rules.hll_sparse_bytes_max = sparse_bytes_max;
    bench.run_args(&[&b"SET"[..], b"h", &bytes]);
    for line in ["PFDEBUG DECODE h", "PFCOUNT h", "PFCOUNT h other", "PFMERGE d h", "PFADD h", "PFADD h a b c d e f"] {
        bench.run(line);
    }
    // A value that can be merged gives the same registers at another key.
    if bench.run("PFMERGE e h") == "+OK" {
        assert_eq!(bench.run("PFCOUNT e"), bench.run("PFCOUNT h none"));
        assert_eq!(bench.run("PFADD e g h i j k l"), bench.run("PFADD h g h i j k l"));
        assert_eq!(bench.run("PFCOUNT e"), bench.run("PFCOUNT e h"));
    }
    for line in ["PFDEBUG GETREG h", "PFDEBUG TODENSE e", "PFMERGE h e", "PFCOUNT h e"] {
        bench.run(line);
    }
});
