//! The sandbox: the values that scripts can reach, and the actions that it prevents. Error texts are those of Redis.

use resp::reply::{Output, Proto, Reply};
use resp::request::{Args, OwnedArgs};

use crate::api::Version;
use crate::host::{Access, Host, LogLevel, Verdict};
use crate::vm::{self, Call, Vm};

/// A host without commands, which ends a script after this many checks.
struct PollLimit(u32);

impl Host for PollLimit {
    fn call(&mut self, _: Args<'_>, proto: Proto, reply: &mut Output) -> Verdict {
        Reply::new(reply, proto).error("ERR no commands here");
        Verdict::Go
    }

    fn poll(&mut self) -> Verdict {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 { Verdict::End } else { Verdict::Go }
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn access(&mut self, _: Args<'_>) -> Access {
        Access::Allowed
    }

    fn replicate(&mut self, _: bool, _: bool) {}

    fn error_returned(&mut self, _: &[u8], _: bool) {}
}

const VERSION: Version = Version { text: "7.2.4", number: 0x0007_0204 };

/// Runs scripts one after the other in one machine. Returns the string that the last one returns, or the text of its
/// error.
fn run_all(texts: &[&str]) -> String {
    const MEMORY_BYTES_MAX: usize = 8 << 20;
    let mut vm = Vm::new(MEMORY_BYTES_MAX, VERSION).unwrap();
    let args = OwnedArgs::new([].into_iter());
    let mut last = String::new();
    for text in texts {
        let script = vm.load(text.as_bytes(), c"@user_script", &mut PollLimit(1000)).unwrap();
        let call = Call { script, name: "SHA", args: args.args(), first_key: 0, keys: 0, is_function: false };
        let mut output = Output::default();
        let result = vm.run(call, &mut PollLimit(150), &mut Reply::new(&mut output, Proto::Resp2));
        let text = match result {
            // The reply is a length and a line end, then the string and a line end.
            Ok(()) => output.joined().splitn(2, |&byte| byte == b'\n').nth(1).unwrap_or(b"").to_vec(),
            Err(failure) => failure.text,
        };
        last = String::from_utf8_lossy(&text).trim_end_matches("\r\n").to_owned();
    }
    last
}

/// Returns the script's result or error, through `tostring`.
fn run(text: &str) -> String {
    run_all(&[&format!("local _, value = pcall(function() {text} end) return tostring(value)")])
}

#[test]
fn numbers_become_the_text_of_printf() {
    for (number, text) in [
        ("0", "0"),
        ("0 * -1", "-0"),
        ("7", "7"),
        ("-7", "-7"),
        ("1234567890", "1234567890"),
        ("99999999999999", "99999999999999"),
        ("-99999999999999", "-99999999999999"),
        ("1e14", "1e+14"),
        ("-1e14", "-1e+14"),
        ("2^53", "9.007199254741e+15"),
        ("0.5", "0.5"),
        ("-1.5", "-1.5"),
        ("99999999999999.5", "1e+14"),
        ("1/0", "inf"),
    ] {
        assert_eq!(run(&format!("return {number}")), text);
        assert_eq!(run(&format!("return ({number}) .. ''")), text);
    }
}

/// Checks pairs of a script and its result.
fn check(cases: &[(&str, &str)]) {
    for (script, expected) in cases {
        assert_eq!(run(script), *expected, "{script}");
    }
}

const READ_ONLY: &str = "user_script:1: Attempt to modify a readonly table";

#[test]
fn no_global_can_be_made_or_changed() {
    check(&[
        ("x = 1", READ_ONLY),
        ("string = 1", READ_ONLY),
        ("_G.x = 1", READ_ONLY),
        ("_G[1] = 1", READ_ONLY),
        ("local t = setmetatable({}, {__newindex = _G}) t.x = 1", READ_ONLY),
        ("rawset(_G, 'x', 1)", "Attempt to modify a readonly table"),
        ("table.insert(_G, 1)", "Attempt to modify a readonly table"),
        ("setmetatable(_G, {})", "Attempt to modify a readonly table"),
        ("return x", "user_script:1: Script attempted to access nonexistent global variable 'x'"),
        ("return _G.x", "user_script:1: Script attempted to access nonexistent global variable 'x'"),
    ]);
    assert_eq!(run_all(&["pcall(loadstring('x = 1'))", "return tostring(rawget(_G, 'x'))"]), "nil");
}

#[test]
fn libraries_and_metatables_can_not_be_changed() {
    check(&[
        ("string.len = nil", READ_ONLY),
        ("cjson.encode = 1", READ_ONLY),
        ("coroutine.x = 1", READ_ONLY),
        ("rawset(math, 'x', 1)", "Attempt to modify a readonly table"),
        ("table.insert(bit, 1)", "Attempt to modify a readonly table"),
        ("setmetatable(struct, {})", "Attempt to modify a readonly table"),
        // CVE-2025-46818
        ("getmetatable('').__index = {}", READ_ONLY),
        ("getmetatable('').__add = function() end", READ_ONLY),
        (
            "rawset(getmetatable(''), '__call', print)",
            "user_script:1: Script attempted to access nonexistent global variable 'print'",
        ),
        ("rawset(getmetatable(''), '__call', type)", "Attempt to modify a readonly table"),
        ("setmetatable(getmetatable(''), {})", "Attempt to modify a readonly table"),
        ("getmetatable('').__index.len = nil", READ_ONLY),
        (
            "for k in pairs(getmetatable('')) do rawset(getmetatable(''), k, 1) end",
            "Attempt to modify a readonly table",
        ),
        ("getmetatable(_G).__index = nil", READ_ONLY),
        ("return getmetatable(1)", "nil"),
        ("return getmetatable(type)", "nil"),
    ]);
}

#[test]
fn tables_behind_guards_can_be_read_but_not_obtained() {
    check(&[
        ("for k, v in pairs(string) do if k == 'len' then return v('abc') end end", "3"),
        ("local k = next(math) return type(k)", "string"),
        ("return rawget(string, 'len')('abc')", "3"),
        ("return _G._G == _G", "true"),
        ("return getmetatable('').__index == string", "true"),
        ("return getmetatable(string)", "nil"),
        ("return setmetatable({}, getmetatable('')).len('abc')", "3"),
        ("table.foreach(table, function(k, v) if k == 'sort' then error('found', 0) end end)", "found"),
        ("return cjson.encode(math)", "user_script:1: Cannot serialise function: type not supported"),
    ]);
    // Every table reachable by iteration is as protected as the table it was reached through.
    let walk = "local seen, open = {}, {}
        local function walk(t)
            if seen[t] or type(t) ~= 'table' or t == KEYS or t == ARGV then return end
            seen[t] = true
            if pcall(rawset, t, 'x', 1) then open[#open + 1] = t end
            for k, v in pairs(t) do walk(v) end
            walk(getmetatable(t))
        end
        walk(_G) walk(getmetatable('')) return #open";
    assert_eq!(run(walk), "0");
}

#[test]
fn no_function_reaches_out_of_the_sandbox() {
    // CVE-2022-0543: a packaged Lua left `package` in place, which gives access to any C library.
    for name in
        ["package", "require", "module", "io", "debug", "dofile", "loadfile", "print", "newproxy", "setfenv", "getfenv"]
    {
        let error = format!("user_script:1: Script attempted to access nonexistent global variable '{name}'");
        assert_eq!(run(&format!("return {name}")), error);
    }
    check(&[
        ("local names = {} for k in pairs(os) do names[#names + 1] = k end return table.concat(names)", "clock"),
        ("return type(os.clock())", "number"),
    ]);
}

#[test]
fn numbers_are_sorted_like_other_elements() {
    check(&[
        (
            "local t = {3, -1.5, 1e300, 0, 7, -1e300, 3} table.sort(t) return table.concat(t, ' ')",
            "-1e+300 -1.5 0 3 3 7 1e+300",
        ),
        ("local t = {} table.sort(t) return #t", "0"),
        ("local t = {2} table.sort(t, nil) return t[1]", "2"),
        ("local t = {1, 2, 3} table.sort(t, function(a, b) return a > b end) return table.concat(t)", "321"),
        ("local t = {0, -0.0, 1} table.sort(t) return tostring(t[1] == 0 and t[2] == 0 and t[3] == 1)", "true"),
        (
            "local t = {2, 'x', 1} return select(2, pcall(table.sort, t)):match('attempt to compare %w+ with %w+')",
            "attempt to compare string with number",
        ),
        (
            "local t = {} for i = 1, 5000 do t[i] = i * 7919 % 5003 end table.sort(t)
             for i = 2, 5000 do if t[i - 1] >= t[i] then return i end end return 'sorted'",
            "sorted",
        ),
    ]);
}

#[test]
fn the_globals_are_these() {
    let names = "local names = {} for k in pairs(_G) do names[#names + 1] = k end
        table.sort(names) return table.concat(names, ' ')";
    assert_eq!(
        run(names),
        "ARGV KEYS _G _VERSION assert bit cjson cmsgpack collectgarbage coroutine error gcinfo getmetatable ipairs load \
         loadstring math next os pairs pcall rawequal rawget rawset redis select server setmetatable string struct table tonumber \
         tostring type unpack xpcall"
    );
}

#[test]
fn bytecode_is_not_loaded() {
    let refused = "[string \"\x1bLua\"]:1: unexpected symbol near 'char(27)'";
    check(&[
        ("return select(2, loadstring('\\27Lua'))", refused),
        ("return loadstring(string.dump(function() return 1 end))", "nil"),
        (
            "local code = string.dump(function() return 1 end)
             local at = 0 return (load(function() at = at + 1 return code:sub(at, at) end))",
            "nil",
        ),
    ]);
}

#[test]
fn the_parser_never_runs_code() {
    // CVE-2025-49844: Lua calls a reader that has returned nothing at first a second time, while only the parser holds
    // the chunk's name. A reader that runs the collector then frees the name.
    let script = "local at = 0
        local loaded, error = load(function()
            at = at + 1
            if at == 1 then return nil end
            collectgarbage() collectgarbage()
            local garbage = {} for i = 1, 5000 do garbage[i] = string.format('=g%04d', i) end
            return ({[2] = 'x', [3] = ' x'})[at]
        end)
        return type(loaded) .. ' ' .. tostring(error) .. ' ' .. at";
    check(&[
        (script, "function nil 1"),
        ("return select(2, load(function() return {} end))", "user_script:1: reader function must return a string"),
        ("return select(2, load(function() error('no', 0) end))", "no"),
        (
            "local at = 0 return select(2, load(function() at = at + 1 return ({'x', ' x'})[at] end, '=n'))",
            "n:1: '=' expected near 'x'",
        ),
    ]);
    // CVE-2025-46819: Lua counts the level of a long bracket in 32 bits, so longer texts are refused.
    let mut vm = Vm::new(8 << 20, VERSION).unwrap();
    let error = vm.load(&vec![0; vm::TEXT_BYTES_MAX + 1], c"@user_script", &mut PollLimit(1000)).unwrap_err();
    assert_eq!(String::from_utf8_lossy(&error), "chunk has too many bytes");
    for (text, what) in [
        ("return [", "unexpected symbol near '['"),
        ("--[=", ""),
        ("return [=", "invalid long string delimiter near '[='"),
        ("return [=[a]=", "unfinished long string"),
    ] {
        let refused = vm.load(text.as_bytes(), c"@user_script", &mut PollLimit(1000)).err().unwrap_or_default();
        let refused = String::from_utf8_lossy(&refused).into_owned();
        assert!(refused.is_empty() == what.is_empty() && refused.contains(what), "{text}: {refused}");
    }
    let brackets = "local e = string.rep('=', 100000) return loadstring('return [' .. e .. '[a]' .. e .. ']')()";
    check(&[(brackets, "a"), ("return (loadstring('return [' .. string.rep('=', 100000)))", "nil")]);
}

#[test]
fn sizes_and_counts_do_not_overflow() {
    check(&[
        // CVE-2018-11218, CVE-2018-11219, CVE-2015-8080 and CVE-2020-14147: large numbers in formats, and large lengths
        // announced by a few bytes.
        ("return struct.size('>!2147483648i4')", "user_script:1: integral size overflow"),
        ("return struct.pack('>I2147483648', '10')", "user_script:1: integral size overflow"),
        ("return struct.pack('>c4294967296', 'x')", "user_script:1: integral size overflow"),
        ("return struct.unpack('s', 'a', -2147483648)", "user_script:1: bad argument #2 to 'unpack' (data string too short)"),
        ("return #{cmsgpack.unpack(string.rep('\\192', 9000))}", "user_script:1: stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)"),
        // CVE-2021-32626: a reply or an argument list that needs more stack than there is.
        ("return #{redis.pcall(unpack({}, 1, 7000))}", "1"),
        // CVE-2014-5461: more fixed parameters than arguments, and more than the stack has slots for.
        (
            "local function f(p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, p17, p18, p19, p20,
                p21, p22, p23, p24, p25, p26, p27, p28, p29, p30, p31, p32, p33, p34, p35, p36, p37, p38, p39, p40, ...)
             end for i = 1, 1000 do coroutine.wrap(f)() end return 'fine'",
            "fine",
        ),
        // CVE-2025-46817
        ("return unpack({}, 0, 2147483647)", "user_script:1: too many results to unpack"),
        ("return unpack({}, -2147483648, 2147483647)", "user_script:1: too many results to unpack"),
        ("return unpack({}, 1, 1e8)", "user_script:1: too many results to unpack"),
        ("return unpack({}, 2147483647, 2147483647)", "nil"),
        ("return #string.rep('', 1e9)", "0"),
        ("return string.rep('x', 1e9)", "not enough memory"),
        ("return string.rep('abcdefgh', 2 ^ 31 - 1)", "not enough memory"),
        ("local t = {} for i = 1, 2000 do t[i] = string.rep('x', 1e4) end return table.concat(t)", "not enough memory"),
        ("return string.format('%99999d', 1)", "user_script:1: invalid format (width or precision too long)"),
        // CVE-2024-31449
        ("return bit.tohex(0x1234abcd, -2147483648)", "1234ABCD"),
        ("return bit.tohex(1, 2147483647)", "00000001"),
        ("return struct.pack('i2147483647', 1)", "user_script:1: integral size 2147483647 is larger than limit of 32"),
        ("return struct.pack('i99999999999', 1)", "user_script:1: integral size overflow"),
        (
            "return struct.unpack('c2147483647', 'a')",
            "user_script:1: bad argument #2 to 'unpack' (data string too short)",
        ),
        ("return struct.unpack('Lc0', string.rep('\\255', 8))", ""),
        (
            "return struct.unpack('b', 'a', 2 ^ 62)",
            "user_script:1: bad argument #2 to 'unpack' (data string too short)",
        ),
        ("return cmsgpack.unpack('\\221\\255\\255\\255\\255')", "user_script:1: Missing bytes in input."),
        ("return cmsgpack.unpack('\\219\\255\\255\\255\\255')", "user_script:1: Missing bytes in input."),
    ]);
    // CVE-2022-24834: text that grows to six times its size.
    assert_eq!(run("return #cjson.encode(string.rep('\\1', 1e5))"), "600002");
    assert_eq!(run("return cjson.encode(string.rep('\\1', 4e6))"), "not enough memory");
}

#[test]
fn depth_has_a_limit() {
    check(&[
        ("local t = {} t[1] = t return cjson.encode(t)", "user_script:1: Cannot serialise, excessive nesting (1001)"),
        (
            "cjson.encode_max_depth(1e6) local t = {} t[1] = t return cjson.encode(t)",
            "user_script:1: Cannot serialise, excessive nesting (1001)",
        ),
        (
            "return cjson.decode(string.rep('[', 2000))",
            "user_script:1: Found too many nested data structures (1001) at character 1001",
        ),
        ("local t = {} t[1] = t return #cmsgpack.pack(t)", "17"),
        // CVE-2021-43519
        (
            "local f f = function() pcall(1) coroutine.wrap(f)() end return select(2, pcall(f)):match('C stack overflow')",
            "C stack overflow",
        ),
        (
            "return select(2, pcall(cmsgpack.unpack, string.rep('\\145', 1e5))):match('stack overflow')",
            "stack overflow",
        ),
        (
            "return select(2, loadstring('return ' .. string.rep('(', 1e5))):match('chunk has too many syntax levels')",
            "chunk has too many syntax levels",
        ),
        ("return string.find(string.rep('a', 1e5), string.rep('a?', 1e5))", "user_script:1: pattern too complex"),
        ("return string.find(string.rep('(', 1e5), string.rep('(', 1e5))", "user_script:1: too many captures"),
        ("local s = string.rep('a', 1e6) return #s:match('(.-)b?$')", "1000000"),
    ]);
}

#[test]
fn endless_library_calls_are_ended() {
    let ended = "Script killed by user with SCRIPT KILL...";
    for script in [
        "return string.find(string.rep('a', 1e5), string.rep('a*', 20) .. 'b')",
        "return string.match(string.rep('a', 1e5), '(.-)(.-)(.-)b')",
        "return string.gsub(string.rep('a', 1e5), string.rep('a-', 20) .. 'b', 'x')",
        "for w in string.gmatch(string.rep('(', 1e5), '%b()') do end",
        "local t = {} for i = 1, 1e5 do t[i] = 1 end
         local n = 0 table.sort(t, function() n = n + 1 return n % 3 == 0 end) while true do table.sort(t) end",
        "table.insert({}, -2147483648, 1)",
        "while true do pcall(string.find, string.rep('a', 1e4), string.rep('a*', 20) .. 'b') end",
        "local co = coroutine.create(function() while true do end end) while true do coroutine.resume(co) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "local f f = function() return pcall(f) end while true do f() end",
        "while true do local t = setmetatable({}, {__index = function() while true do end end}) pcall(function() return t.x end) end",
        "cjson.encode_sparse_array(false, 0) while true do cjson.encode({[1] = 1, [1e5] = 1}) end",
        "local s = string.rep('[1,', 100) while true do pcall(cjson.decode, s) end",
    ] {
        let answer = run_all(&[&script.replace('\n', " ")]);
        assert!(answer.contains(ended), "{script}: {answer}");
    }
}

#[test]
fn no_script_sees_the_state_of_another() {
    for (first, then, expected) in [
        ("cjson.encode_max_depth(1)", "return cjson.encode({{}})", "[{}]"),
        ("cjson.encode_number_precision(3)", "return cjson.encode(1 / 8 + 1 / 64)", "0.140625"),
        ("return 1", "return tostring(math.random())", "0.39646477363839"),
        ("math.random()", "return tostring(math.random())", "0.84048536971234"),
        ("math.randomseed(7) math.random()", "return tostring(math.random())", "0.39646477363839"),
        (
            "collectgarbage('stop')",
            "for i = 1, 1e4 do local s = ('x'):rep(1000) .. i end return 'collected'",
            "collected",
        ),
        (
            "collectgarbage('setpause', 1e9)",
            "for i = 1, 1e4 do local s = ('x'):rep(1000) .. i end return 'collected'",
            "collected",
        ),
    ] {
        assert_eq!(run_all(&[first, then]), expected, "{first}");
    }
    let copy = "local copy = cjson.new() copy.encode_max_depth(1) return tostring(pcall(copy.encode, {{}})) .. cjson.encode({{}})";
    assert_eq!(run_all(&[copy]), "false[{}]");
}

/// CVE-2022-24735: a script of one user replaces a function, and another user's script calls the replacement. The test
/// also covers libraries, which share a table of globals.
#[test]
fn no_script_or_library_leaves_code_for_another() {
    let mut vm = Vm::new(8 << 20, VERSION).unwrap();
    for text in ["tostring = 1", "redis.call = 1", "redis = 1", "x = 1", "redis.register_function = 1"] {
        let error = vm.load_library(text.as_bytes(), &mut PollLimit(150)).unwrap_err();
        assert!(String::from_utf8_lossy(&error).contains("Attempt to modify a readonly table"), "{text}");
    }
    // A library function's own copy of the table can't be changed either.
    let keeps = "local kept = redis redis.register_function('f', function()
            return tostring(pcall(rawset, kept, 'log', 1)) .. tostring(pcall(setmetatable, kept, {}))
                .. tostring(pcall(function() kept.register_function = 1 end)) .. tostring(getmetatable(kept).__index == nil)
        end)";
    let kept = vm.load_library(keeps.as_bytes(), &mut PollLimit(150)).unwrap();
    let args = OwnedArgs::new([].into_iter());
    let script = kept[0].loaded;
    let call = Call { script, name: "f", args: args.args(), first_key: 0, keys: 0, is_function: true };
    let mut output = Output::default();
    vm.run(call, &mut PollLimit(150), &mut Reply::new(&mut output, Proto::Resp2)).unwrap();
    assert_eq!(String::from_utf8_lossy(output.joined()), "$20\r\nfalsefalsefalsefalse\r\n");
    // CVE-2022-24736: a function of a refused library must not remain anywhere.
    let refused = "redis.register_function('f', function() end) nosuch()";
    for _ in 0..3 {
        let error = vm.load_library(refused.as_bytes(), &mut PollLimit(150)).unwrap_err();
        assert!(String::from_utf8_lossy(&error).contains("nonexistent global variable 'nosuch'"));
    }
    assert_eq!(vm.load_library(b"redis.register_function('f', function() end)", &mut PollLimit(150)).unwrap().len(), 1);
}

#[test]
fn no_finalizer_of_a_script_runs() {
    // CVE-2024-46981: a finalizer that runs while the machine is being closed. Only userdata have finalizers, and no
    // script can get a metatable of one.
    let script = "setmetatable({}, {__gc = function() error('ran') end}) collectgarbage() return 'quiet'";
    assert_eq!(run(script), "quiet");
    let found = "local found, seen = {}, {}
        local function look(value, name)
            if type(value) == 'userdata' and getmetatable(value) then found[#found + 1] = name end
            if type(value) ~= 'table' or seen[value] then return end
            seen[value] = true
            for k, v in pairs(value) do look(k, name) look(v, name .. '.' .. tostring(k)) end
        end
        look(_G, '')
        for _, make in ipairs({rawget(_G, 'newproxy'), cjson.new, cjson.null}) do
            local is_made, value = pcall(make, true)
            look(is_made and value or nil, 'made')
        end
        return table.concat(found, ' ')";
    assert_eq!(run(found), "");
}
