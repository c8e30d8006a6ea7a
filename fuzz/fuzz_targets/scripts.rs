//! Scripts with arbitrary arguments for their libraries: the machine survives, stays within its memory, and treats the
//! next script like the first one.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use resp::reply::{Output, Proto, Reply};
use resp::request::{Args, OwnedArgs};
use script::api::Version;
use script::host::{Access, Host, LogLevel, Verdict};
use script::vm::{Call, Loaded, Vm};

/// Small enough for an input to exhaust it.
const MEMORY_BYTES_MAX: usize = 4 << 20;

/// The scripts that process the two parts of an input, ARGV[1] and ARGV[2].
const TRIALS: &[&str] = &[
    "local ok, value = pcall(cjson.decode, ARGV[1])
     if ok then local again, text = pcall(cjson.encode, value) if again then cjson.decode(text) end end",
    "local values = {pcall(cmsgpack.unpack, ARGV[1])}
     if values[1] then cmsgpack.unpack(cmsgpack.pack(values)) end",
    "local values = {pcall(struct.unpack, ARGV[1], ARGV[2])}
     if values[1] then pcall(struct.pack, ARGV[1], unpack(values, 2, #values - 1)) end
     pcall(struct.size, ARGV[1])",
    "pcall(string.find, ARGV[2], ARGV[1]) pcall(string.match, ARGV[2], ARGV[1])
     pcall(string.gsub, ARGV[2], ARGV[1], '%1%0') pcall(string.gsub, ARGV[1], '.', ARGV[2])
     pcall(function() for a, b in string.gmatch(ARGV[2], ARGV[1]) do end end)",
    "local t = {string.byte(ARGV[1], 1, 200)} local i = 0
     pcall(table.sort, t, function(a, b) i = i + 1 return (ARGV[2]:byte(i % 50 + 1) or a) < b end)
     pcall(table.sort, t) pcall(string.format, ARGV[1], ARGV[2], 1, 2)",
    "local f = loadstring(ARGV[1]) if f then pcall(f) end
     local at = 0 f = load(function() at = at + 1 collectgarbage('step') return ARGV[1]:sub(at, at) end) if f then pcall(f) end",
];

/// Ends a script at the second check.
struct Impatient(u32);

impl Host for Impatient {
    fn call(&mut self, _: Args<'_>, proto: Proto, reply: &mut Output) -> Verdict {
        Reply::new(reply, proto).error("ERR no commands here");
        Verdict::Go
    }

    fn poll(&mut self) -> Verdict {
        self.0 += 1;
        if self.0 > 2 { Verdict::End } else { Verdict::Go }
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn access(&mut self, _: Args<'_>) -> Access {
        Access::Allowed
    }

    fn replicate(&mut self, _: bool, _: bool) {}

    fn error_returned(&mut self, _: &[u8], _: bool) {}
}

/// A machine with the scripts, and a script that checks that the machine is unchanged.
struct Bench {
    vm: Vm,
    trials: Vec<Loaded>,
    proof: Loaded,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new({
        let mut vm = Vm::new(MEMORY_BYTES_MAX, Version { text: "7.2.4", number: 0x0007_0204 }).expect("memory");
        let trials = TRIALS.iter().map(|text| vm.load(text.as_bytes(), c"@trial", &mut Impatient(0)).expect("a script")).collect();
        let proof = "local n = 0 for k, v in pairs(_G) do n = n + 1 end
            return n .. #string.rep('x', 100) .. cjson.encode({1}) .. ('x'):upper() .. cjson.encode_max_depth()";
        let proof = vm.load(proof.as_bytes(), c"@proof", &mut Impatient(0)).expect("a script");
        Bench { vm, trials, proof }
    });
}

fn run(vm: &mut Vm, script: Loaded, args: &OwnedArgs) -> Option<Vec<u8>> {
    let mut output = Output::default();
    let call = Call { script, name: "fuzz", args: args.args(), first_key: 0, keys: 0, is_function: false };
    let result = vm.run(call, &mut Impatient(0), &mut Reply::new(&mut output, Proto::Resp3));
    result.ok().map(|()| output.joined().to_vec())
}

fuzz_target!(|data: &[u8]| {
    let Some((&[trial, cut], input)) = data.split_first_chunk::<2>() else { return };
    let (first, second) = input.split_at(usize::from(cut).min(input.len()));
    let args = OwnedArgs::new([first, second].into_iter());
    BENCH.with_borrow_mut(|bench| {
        let script = bench.trials[usize::from(trial) % bench.trials.len()];
        run(&mut bench.vm, script, &args);
        let proof = run(&mut bench.vm, bench.proof, &args).expect("the machine is as it was");
        assert_eq!(String::from_utf8_lossy(&proof), "$13\r\n36100[1]X1000\r\n");
    });
});
