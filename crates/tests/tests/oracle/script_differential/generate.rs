//! Random scripts that call the libraries.

use penstock_tests::rng::Rng;

/// Defines `add`, which runs a script in a `pcall` and appends its results as text to `results`.
pub const PRELUDE: &str = r#"
local results = {}
local function show(value, depth)
  local kind = type(value)
  if kind == 'string' then
    return '"' .. string.gsub(value, '[%c\128-\255"\\]', function(c) return string.format('\\x%02x', string.byte(c)) end) .. '"'
  end
  if kind == 'number' then return string.format('%.17g', value) end
  if kind == 'boolean' or kind == 'nil' then return tostring(value) end
  if value == cjson.null then return 'null' end
  if kind ~= 'table' or depth > 20 then return '<' .. kind .. '>' end
  local pairs_shown = {}
  for k, v in pairs(value) do pairs_shown[#pairs_shown + 1] = '[' .. show(k, depth + 1) .. ']=' .. show(v, depth + 1) end
  table.sort(pairs_shown)
  return '{' .. table.concat(pairs_shown, ',') .. '}'
end
local function gather(...)
  local shown = {}
  for i = 1, select('#', ...) do shown[i] = show((select(i, ...)), 0) end
  return table.concat(shown, ' ')
end
local function add(script)
  local f, problem = loadstring(script, '@generated')
  results[#results + 1] = f and gather(pcall(f)) or tostring(problem)
end
"#;

/// Returns a Lua string literal with these bytes.
pub fn literal(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("\\{byte:03}")).collect();
    format!("\"{digits}\"")
}

fn between(rng: &mut Rng, low: i64, high: i64) -> i64 {
    low + rng.below((high - low + 1) as usize) as i64
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

fn number(rng: &mut Rng) -> String {
    let fraction = rng.next_u64() as f64 / u64::MAX as f64;
    let power = rng.below(67) as i32;
    let near = between(rng, -1, 1) as f64;
    match rng.below(6) {
        0 => between(rng, -200, 200).to_string(),
        1 => format!("{:.12}", (fraction - 0.5) * 2e3),
        2 => format!("{:e}", fraction * 10f64.powi(between(rng, -320, 308) as i32)),
        3 => format!("{}", 2f64.powi(power) + near),
        4 => format!("-{}", 2f64.powi(power) + near),
        _ => format!("{:.4}", fraction * 100.0),
    }
}

fn odd_number(rng: &mut Rng) -> String {
    if rng.chance(85) {
        number(rng)
    } else {
        rng.pick(&["0/0", "1/0", "-1/0", "-0", "\"12\"", "\"0x10\"", "nil"]).to_string()
    }
}

/// Returns a random value in Lua's syntax.
fn value(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth > 3 { 7 } else { 11 }) {
        0..=2 => number(rng),
        3 => literal(format!("key{}", rng.below(10)).as_bytes()),
        4 => {
            let len = *rng.pick(&[0, 1, 8, 31, 32, 255, 256]);
            literal(&bytes(rng, len))
        }
        5 => literal(b"a/b\"\\\x7f\n"),
        6 => rng.pick(&["true", "false", "nil", "cjson.null", "-0", "0/0", "1/0", "type"]).to_string(),
        7..=8 => {
            let items: Vec<String> = (0..rng.below(6)).map(|_| value(rng, depth + 1)).collect();
            format!("{{{}}}", items.join(","))
        }
        _ => {
            let items: Vec<String> = (0..rng.below(6))
                .map(|_| {
                    let key = match rng.below(4) {
                        0 => format!("k{}", rng.below(10)),
                        1 => format!("[{}]", number(rng)),
                        2 => format!("[{}]", between(rng, -1, 12)),
                        _ => rng.pick(&["[true]", "x", "[\"a b\"]", "[1]"]).to_string(),
                    };
                    format!("{key}={}", value(rng, depth + 1))
                })
                .collect();
            format!("{{{}}}", items.join(","))
        }
    }
}

const ATOMS: &[&str] = &[
    "a", "b", ".", "%a", "%d", "%w", "%s", "%A", "%x", "%p", "%z", "[ab]", "[^ab]", "[a-c]", "[]a]", "[^]]", "[%a-]",
    "[a%]b]", "%b()", "%bab", "%f[a]", "%f[%w]", "%1", "%2", "()", "(a)", "(.)", "(a*)", "(.-)", "(", "(", ")", ")",
    "$", "^", "%", "[", "-", "*", "?", "+", "\0", "1", "%%", "%.", "[a-]", "[%", "\u{e9}",
];

/// Returns a search, match or replacement.
pub fn pattern(rng: &mut Rng) -> String {
    let pattern: String = (0..rng.below(7))
        .map(|_| format!("{}{}", rng.pick(ATOMS), rng.pick(&["", "", "", "*", "+", "-", "?"])))
        .collect();
    let subject: Vec<u8> = (0..rng.below(15)).map(|_| *rng.pick(b"aabbc()[] 1.%-]\0\xe9")).collect();
    let (pattern, subject) = (literal(pattern.as_bytes()), literal(&subject));
    match rng.below(6) {
        0 => format!("return string.find({subject}, {pattern}, {})", between(rng, -8, 8)),
        1 => format!("return string.match({subject}, {pattern}, {})", between(rng, -2, 4)),
        2 => {
            let template: String = (0..rng.below(4)).map(|_| *rng.pick(&["x", "%0", "%1", "%2", "%", "%%"])).collect();
            let most = rng.pick(&["nil", "nil", "1", "2", "-1"]);
            format!("return string.gsub({subject}, {pattern}, {}, {most})", literal(template.as_bytes()))
        }
        3 => format!(
            "local t = {{}} for a, b in string.gmatch({subject}, {pattern}) do t[#t + 1] = {{a, b}} end return t"
        ),
        4 => {
            let by = rng.pick(&[
                "{a = 1, b = false}",
                "function(...) return (...) end",
                "function(a, b) return b end",
                "string.upper",
            ]);
            format!("return string.gsub({subject}, {pattern}, {by})")
        }
        _ => format!("return string.find({subject}, {pattern})"),
    }
}

/// Redis's scripts share the options, so each script sets them first.
fn json_options(rng: &mut Rng) -> String {
    let reset = "cjson.encode_sparse_array(false, 2, 10) cjson.encode_invalid_numbers(false) \
                 cjson.encode_number_precision(14) cjson.decode_invalid_numbers(true) cjson.encode_max_depth(1000)";
    let option = match rng.below(12) {
        0 => "cjson.encode_sparse_array(true)".to_owned(),
        1 => "cjson.encode_sparse_array(false, 0)".to_owned(),
        2 => "cjson.encode_invalid_numbers(true)".to_owned(),
        3 => "cjson.encode_invalid_numbers('null')".to_owned(),
        4 => format!("cjson.encode_number_precision({})", between(rng, 1, 14)),
        5 => "cjson.decode_invalid_numbers(false)".to_owned(),
        6 => format!("cjson.encode_max_depth({})", between(rng, 1, 4)),
        _ => String::new(),
    };
    format!("{reset} {option}")
}

/// Encodes a random value as JSON.
pub fn json_encode(rng: &mut Rng) -> String {
    format!("{} return cjson.encode({})", json_options(rng), value(rng, 0))
}

fn json(rng: &mut Rng, depth: usize) -> String {
    const PIECES: &[&str] = &[
        "a",
        "b",
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\\ud83d",
        "\\udead",
        "\\u12",
        "\u{e9}",
        "\\x",
        "\\u0000",
        "\u{1}",
    ];
    const WORDS: &[&str] = &[
        "true",
        "false",
        "null",
        "nan",
        "-inf",
        "Infinity",
        "0x1F",
        "0x1.8p3",
        "-0x",
        "+1",
        ".5",
        "5.",
        "1e5",
        "1E-3",
        "01",
        "-",
        "nan(12)",
        "NaN",
        "tru",
        "infinit",
        "-nan",
        "0x.1",
        "1e",
        "1e+",
        "0X1p-1074",
        "0x123456789abcdef01",
        "2.4e-324",
        "1.7976931348623159e308",
    ];
    let space = *rng.pick(&["", "", "", " ", "\n\t"]);
    let text = match rng.below(if depth > 3 { 6 } else { 10 }) {
        0..=2 => number(rng),
        3 | 4 => {
            let text: String =
                (0..rng.below(6)).map(|_| if rng.chance(60) { "b" } else { *rng.pick(PIECES) }).collect();
            format!("\"{text}\"")
        }
        5 => rng.pick(WORDS).to_string(),
        6 | 7 => {
            let items: Vec<String> = (0..rng.below(5)).map(|_| json(rng, depth + 1)).collect();
            format!("[{}{space}]", items.join(","))
        }
        _ => {
            let items: Vec<String> =
                (0..rng.below(5)).map(|_| format!("\"k{}\"{space}:{}", rng.below(6), json(rng, depth + 1))).collect();
            format!("{{{}}}", items.join(","))
        }
    };
    format!("{space}{text}")
}

/// Changes, adds or removes some bytes.
fn damaged(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..*rng.pick(&[0, 0, 0, 1, 1, 2]) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len());
        match rng.below(4) {
            0 => drop(bytes.remove(at)),
            1 => bytes[at] = rng.next_u64() as u8,
            2 => bytes.insert(at, *rng.pick(b"{}[],:\"\\ 01-.eEu\0tfn")),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Decodes JSON, usually valid.
pub fn json_decode(rng: &mut Rng) -> String {
    let text = json(rng, 0).into_bytes();
    format!("{} return cjson.decode({})", json_options(rng), literal(&damaged(rng, text)))
}

/// Encodes random values as MessagePack.
pub fn message_pack(rng: &mut Rng) -> String {
    let values: Vec<String> = (0..rng.below(3)).map(|_| value(rng, 0)).collect();
    format!("return cmsgpack.pack({})", values.join(","))
}

/// Decodes MessagePack, usually valid.
pub fn message_unpack(rng: &mut Rng) -> String {
    const HEADS: &[(&[u8], usize)] = &[
        (b"\x92", 0),
        (b"\x82", 0),
        (b"\xa3abc", 0),
        (b"\xc0", 0),
        (b"\xc3", 0),
        (b"\xcb", 8),
        (b"\xca", 4),
        (b"\xcd", 2),
        (b"\xd3", 8),
        (b"\xcf", 8),
        (b"\xd9\x02ab", 0),
        (b"\xdc\0\x02", 0),
        (b"\xde\0\x01", 0),
        (b"\x05", 0),
        (b"\xff", 0),
        (b"\xd0", 1),
        (b"\xd1", 2),
        (b"\xd2", 4),
        (b"\xce", 4),
        (b"\xcc", 1),
        (b"\x90", 0),
        (b"\x80", 0),
        (b"\xdd\0\0\0\x01", 0),
        (b"\xdf\0\0\0\x01", 0),
        (b"\xda\0\x01a", 0),
        (b"\xdb\0\0\0\x01a", 0),
    ];
    let input = if rng.chance(25) {
        let len = rng.below(12);
        bytes(rng, len)
    } else {
        let mut input = Vec::new();
        for _ in 0..1 + rng.below(8) {
            let (head, more) = *rng.pick(HEADS);
            input.extend_from_slice(head);
            input.extend(bytes(rng, more));
        }
        damaged(rng, input)
    };
    let input = literal(&input);
    match rng.below(4) {
        0 | 1 => format!("return cmsgpack.unpack({input})"),
        2 => format!("return cmsgpack.unpack_one({input}, {})", between(rng, -1, 9)),
        _ => format!("return cmsgpack.unpack_limit({input}, {}, {})", between(rng, -1, 4), between(rng, -1, 9)),
    }
}

fn format_of_struct(rng: &mut Rng) -> String {
    const LETTERS: &[&str] = &[
        "b", "B", "h", "H", "l", "L", "T", "i", "I", "f", "d", "x", "s", "c", ">", "<", "=", "!", "!2", "!4", "!8",
        " ", "c0", "bc0", "Ic0", "z", "!3",
    ];
    let letters: String = (0..rng.below(7))
        .map(|_| match rng.below(8) {
            0 => format!("i{}", rng.below(35)),
            1 => format!("I{}", rng.below(35)),
            2 => format!("c{}", rng.below(5)),
            _ => rng.pick(LETTERS).to_string(),
        })
        .collect();
    literal(letters.as_bytes())
}

/// Packs values as a structure, or computes the size of one.
pub fn struct_pack(rng: &mut Rng) -> String {
    if rng.chance(20) {
        return format!("return struct.size({})", format_of_struct(rng));
    }
    let values: String = (0..rng.below(7))
        .map(|_| match rng.below(4) {
            0 => ", 'abc'".to_owned(),
            _ => format!(", {}", odd_number(rng)),
        })
        .collect();
    format!("return struct.pack({}{values})", format_of_struct(rng))
}

/// Unpacks a structure.
pub fn struct_unpack(rng: &mut Rng) -> String {
    let input = if rng.chance(50) { bytes(rng, 40) } else { (0..30).map(|_| rng.below(4) as u8).collect() };
    let input = literal(&input[..rng.below(input.len() + 1)]);
    let offset = if rng.chance(70) { String::new() } else { format!(", {}", between(rng, -1, 20)) };
    format!("return struct.unpack({}, {input}{offset})", format_of_struct(rng))
}

/// Returns an operation on bits.
pub fn bits(rng: &mut Rng) -> String {
    let name = rng
        .pick(&["tobit", "tohex", "bnot", "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "bswap"]);
    let numbers: Vec<String> = (0..rng.below(4)).map(|_| odd_number(rng)).collect();
    format!("return bit.{name}({})", numbers.join(", "))
}

/// Sorts with distinguishable equal elements, by valid and by invalid order functions.
pub fn sort(rng: &mut Rng) -> String {
    let distinct = *rng.pick(&[3, 10, 1000]);
    let items: Vec<String> = (0..rng.below(60)).map(|i| format!("{{k={},i={i}}}", rng.below(distinct))).collect();
    let less = rng.pick(&[
        "function(a, b) return a.k < b.k end",
        "function(a, b) return a.k > b.k end",
        "function(a, b) return a.k <= b.k end",
        "function() return true end",
        "function(a, b) return (a.k * 7 + b.k * 3) % 5 < 2 end",
        "nil",
    ]);
    format!(
        "local t = {{{}}} local ok, problem = pcall(table.sort, t, {less})
         local order = {{}} for i = 1, #t do order[i] = t[i].i end return ok, problem, table.concat(order, ',')",
        items.join(",")
    )
}

/// Calls a basic function or a function of `table`.
pub fn basic(rng: &mut Rng) -> String {
    let mut some = || value(rng, 1);
    let (a, b, c) = (some(), some(), some());
    let (small, number) = (between(rng, -3, 9), number(rng));
    match rng.below(15) {
        0 => format!("return unpack({a}, {small}, {})", between(rng, -3, 9)),
        1 => format!("return string.rep({a}, {small})"),
        2 => format!("local t = {a} table.insert(t, {small}, {b}) return t"),
        3 => format!("local t = {a} table.insert(t, {b}) return t"),
        4 => format!("return table.maxn({a})"),
        5 => format!("local t = {{}} for k in pairs({a}) do t[#t + 1] = type(k) == 'table' or k end return t"),
        6 => format!("return next({a}, {b}) ~= nil"),
        7 => format!("return rawset({a}, {b}, {c})"),
        8 => format!("return rawget({a}, {b})"),
        9 => format!("return setmetatable({a}, {b})"),
        10 => format!("return pcall(error, {a})"),
        11 => format!("return xpcall(function() error({a}) end, function(e) return {{e}} end)"),
        12 => {
            format!("math.randomseed({number}) return math.random(), math.random({small}), math.random({small}, 500)")
        }
        13 => format!("local t = {{{number}, {small}, 3, 1, 2}} table.sort(t) return t"),
        _ => format!("return loadstring({a})"),
    }
}
