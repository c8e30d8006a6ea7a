//! The kinds of values: their parsing, their display by CONFIG GET, and their lines for CONFIG REWRITE.
//!
//! Error texts are Redis's own, because users search for them and test suites compare them.

use resp::num::parse_bytes;

use super::cell::Value;
use super::special;

/// Conversion between a directive's arguments and its value.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// `yes` or `no`.
    Bool,
    /// An integer, `min..=max`; accepted numbers outside `keep` are moved to its nearer end.
    Int {
        /// The minimum of accepted numbers.
        min: i64,
        /// The maximum of accepted numbers.
        max: i64,
        /// The range of stored numbers.
        keep: (i64, i64),
    },
    /// A number of bytes with an optional unit (`1kb` is 1024 bytes, `1k` is 1000), `min..=max`; accepted
    /// numbers below `keep_min` are raised to it.
    Bytes {
        /// The minimum of accepted numbers.
        min: u64,
        /// The maximum of accepted numbers.
        max: u64,
        /// The minimum of stored numbers.
        keep_min: u64,
    },
    /// A number of bytes like [`ValueKind::Bytes`], or a percentage up to `100%`, which is stored as a negative number.
    BytesOrPercent,
    /// A number of bytes like [`ValueKind::Bytes`], or -1 for no limit.
    BytesOrUnlimited,
    /// An octal number up to `max`, for example a file mode.
    Octal {
        /// The maximum of accepted numbers.
        max: u32,
    },
    /// One of these words, in any case; stored as its index.
    Choice(&'static [&'static str]),
    /// One string, stored unchanged.
    Text,
    /// An existing directory, stored as an absolute path; a relative one starts at the previous value.
    Directory,
    /// Several words; the function checks and normalizes them.
    Words(fn(&[&str]) -> Result<Vec<String>, String>),
    /// `save`: pairs of seconds and changes.
    Save,
    /// `client-output-buffer-limit`: groups of class, hard limit, soft limit and seconds, merged into the previous
    /// value.
    OutputLimits,
    /// `notify-keyspace-events`: letters, stored as bits.
    KeyspaceEvents,
}

/// Error for a wrong number of arguments.
pub(super) const WRONG_ARITY: &str = "wrong number of arguments";

const NOT_BYTES: &str = "argument must be a memory value";

impl ValueKind {
    /// Returns true if the kind takes any number of arguments; CONFIG SET then splits its argument at blanks.
    pub(super) fn is_multi(self) -> bool {
        matches!(self, ValueKind::Words(_) | ValueKind::Save | ValueKind::OutputLimits)
    }

    /// Returns the arguments in CONFIG SET's single value, split at each blank for the kinds that take several. Two
    /// blanks in a row make an empty argument, which is refused, as in Redis.
    pub(super) fn arguments(self, value: &str) -> Vec<&str> {
        match self.is_multi() {
            true if value.is_empty() => Vec::new(),
            true => value.split(' ').collect(),
            false => vec![value],
        }
    }

    /// Parses `args`; `before` is the directive's present value.
    pub(super) fn parse(self, args: &[&str], before: &Value) -> Result<Value, String> {
        match self {
            ValueKind::Words(check) => Ok(Value::Text(check(args)?.join(" ").into())),
            ValueKind::Save => special::parse_save(args).map(|text| Value::Text(text.into())),
            ValueKind::OutputLimits => special::parse_output_limits(args, before),
            _ => match args {
                [arg] => self.parse_one(arg, before),
                _ => Err(WRONG_ARITY.into()),
            },
        }
    }

    fn parse_one(self, arg: &str, before: &Value) -> Result<Value, String> {
        match self {
            ValueKind::Bool => parse_bool(arg),
            ValueKind::Int { min, max, keep } => parse_int(arg, min, max).map(|int| int.clamp(keep.0, keep.1).into()),
            ValueKind::Bytes { min, max, keep_min } => parse_bytes(arg)
                .ok_or(NOT_BYTES.into())
                .and_then(|bytes| in_range(bytes, min, max))
                .map(|bytes| bytes.max(keep_min.into())),
            ValueKind::BytesOrPercent => return parse_bytes_or_percent(arg).map(Value::Number),
            ValueKind::BytesOrUnlimited => parse_bytes_or_unlimited(arg),
            ValueKind::Octal { max } => parse_octal(arg, max),
            ValueKind::Choice(words) => parse_choice(arg, words),
            ValueKind::KeyspaceEvents => special::parse_keyspace_events(arg).map(i128::from),
            ValueKind::Directory => {
                return special::resolve_directory(arg, before).map(|path| Value::Text(path.into()));
            }
            _ => return Ok(Value::Text(arg.into())),
        }
        .map(Value::Number)
    }

    /// Formats the value for CONFIG GET.
    pub(super) fn show(self, value: &Value) -> String {
        match (self, value) {
            (ValueKind::Bool, Value::Number(number)) => if *number != 0 { "yes" } else { "no" }.into(),
            (ValueKind::BytesOrPercent, Value::Number(percent @ ..0)) => format!("{}%", -percent),
            (ValueKind::Octal { .. }, Value::Number(number)) => format!("{number:o}"),
            (ValueKind::Choice(words), Value::Number(index)) => {
                usize::try_from(*index).ok().and_then(|index| words.get(index)).copied().unwrap_or_default().into()
            }
            (ValueKind::KeyspaceEvents, Value::Number(bits)) => {
                special::show_keyspace_events(u32::try_from(*bits).unwrap_or(0))
            }
            (_, Value::Number(number)) => number.to_string(),
            (_, Value::Text(text)) => text.to_string(),
            (_, Value::Limits(limits)) => special::show_output_limits(limits),
        }
    }

    /// Returns the lines that set `name` to `value` in a configuration file, without line breaks.
    pub(super) fn lines(self, name: &str, value: &Value) -> Vec<String> {
        match (self, value) {
            (ValueKind::Save, Value::Text(text)) => special::save_lines(text),
            (ValueKind::OutputLimits, Value::Limits(limits)) => special::output_limit_lines(limits),
            (
                ValueKind::Bytes { .. } | ValueKind::BytesOrPercent | ValueKind::BytesOrUnlimited,
                Value::Number(bytes @ 0..),
            ) => {
                vec![format!("{name} {}", with_unit(*bytes))]
            }
            (ValueKind::Text | ValueKind::Directory | ValueKind::KeyspaceEvents, value) => {
                vec![format!("{name} {}", quoted(&self.show(value)))]
            }
            // Zero words (bind to nothing) need a valid line, too: "" parses as no words.
            (ValueKind::Words(_), Value::Text(text)) if text.is_empty() => vec![format!("{name} \"\"")],
            (_, value) => vec![format!("{name} {}", self.show(value))],
        }
    }
}

fn parse_bytes_or_unlimited(arg: &str) -> Result<i128, String> {
    let bytes = match canonical_int(arg).filter(|&int| int < 0) {
        Some(negative) => negative.into(),
        None => i128::from(parse_bytes(arg).ok_or(NOT_BYTES)?),
    };
    in_range(bytes, -1, i64::MAX.into())
}

fn parse_bool(arg: &str) -> Result<i128, String> {
    if arg.eq_ignore_ascii_case("yes") {
        Ok(1)
    } else if arg.eq_ignore_ascii_case("no") {
        Ok(0)
    } else {
        Err("argument must be 'yes' or 'no'".into())
    }
}

/// Parses a decimal number in canonical form: no plus sign, no leading zero, no blanks.
pub(super) fn canonical_int(arg: &str) -> Option<i64> {
    arg.parse::<i64>().ok().filter(|int| int.to_string() == arg)
}

pub(super) fn parse_int(arg: &str, min: i64, max: i64) -> Result<i64, String> {
    let int = canonical_int(arg).ok_or("argument couldn't be parsed into an integer")?;
    in_range(int, min, max).map(|_| int)
}

fn in_range<T: PartialOrd + std::fmt::Display + Into<i128>>(number: T, min: T, max: T) -> Result<i128, String> {
    if number < min || number > max {
        return Err(format!("argument must be between {min} and {max} inclusive"));
    }
    Ok(number.into())
}

fn parse_bytes_or_percent(arg: &str) -> Result<i128, String> {
    const NEITHER: &str = "argument must be a memory or percent value";
    let Some(percent) = arg.strip_suffix('%') else {
        let bytes = parse_bytes(arg).ok_or(NEITHER)?;
        return in_range(bytes, 0, i64::MAX as u64);
    };
    let percent = canonical_int(percent).filter(|percent| *percent >= 0).ok_or(NEITHER)?;
    if percent > 100 {
        return Err("percentage argument must be less or equal to 100".into());
    }
    Ok(-i128::from(percent))
}

fn parse_octal(arg: &str, max: u32) -> Result<i128, String> {
    if !arg.bytes().all(|digit| matches!(digit, b'0'..=b'7')) {
        return Err("argument couldn't be parsed as an octal number".into());
    }
    let number = if arg.is_empty() { 0 } else { u32::from_str_radix(arg, 8).unwrap_or(u32::MAX) };
    if number > max {
        return Err(format!("argument must be between 0 and {max:o} inclusive"));
    }
    Ok(number.into())
}

fn parse_choice(arg: &str, words: &[&str]) -> Result<i128, String> {
    match words.iter().position(|word| word.eq_ignore_ascii_case(arg)) {
        Some(index) => Ok(index as i128),
        None => Err(not_one_of(words)),
    }
}

/// Returns the error text for a word outside of `words`.
pub(super) fn not_one_of(words: &[&str]) -> String {
    format!("argument(s) must be one of the following: {}", words.join(", "))
}

/// Formats bytes in the largest unit that divides them.
pub(super) fn with_unit(bytes: i128) -> String {
    match bytes {
        0 => "0".into(),
        bytes if bytes % (1 << 30) == 0 => format!("{}gb", bytes >> 30),
        bytes if bytes % (1 << 20) == 0 => format!("{}mb", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{}kb", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

/// Returns `text` in double quotes, in the syntax of [`resp::splitargs::split_args`].
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: ValueKind, arg: &str, expected: Result<&str, &str>) {
        let found = kind.parse(&kind.arguments(arg), &Value::Number(0)).map(|value| kind.show(&value));
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{kind:?} {arg:?}");
    }

    #[test]
    fn booleans() {
        check(ValueKind::Bool, "YES", Ok("yes"));
        check(ValueKind::Bool, "no", Ok("no"));
        for arg in ["1", "", "yes "] {
            check(ValueKind::Bool, arg, Err("argument must be 'yes' or 'no'"));
        }
    }

    #[test]
    fn integers() {
        let kind = ValueKind::Int { min: -1, max: 10, keep: (0, 5) };
        check(kind, "3", Ok("3"));
        check(kind, "-1", Ok("0"));
        check(kind, "10", Ok("5"));
        check(kind, "11", Err("argument must be between -1 and 10 inclusive"));
        for arg in ["", " 1", "1 ", "+1", "01", "0x1", "-0", "1k", "9223372036854775808"] {
            check(kind, arg, Err("argument couldn't be parsed into an integer"));
        }
    }

    #[test]
    fn memory() {
        let kind = ValueKind::Bytes { min: 0, max: u64::MAX, keep_min: 0 };
        for (arg, bytes) in [("0", "0"), ("1k", "1000"), ("1KB", "1024"), ("2m", "2000000"), ("2Mb", "2097152")] {
            check(kind, arg, Ok(bytes));
        }
        for (arg, bytes) in [("1g", "1000000000"), ("1gB", "1073741824"), ("7b", "7"), ("", "0"), ("mb", "0")] {
            check(kind, arg, Ok(bytes));
        }
        check(kind, "18446744073709551615", Ok("18446744073709551615"));
        for arg in ["-1", "+1", "1.5gb", " 1", "1 mb", "1t", "18446744073709551616", "18446744073709551615k"] {
            check(kind, arg, Err("argument must be a memory value"));
        }
        let kind = ValueKind::Bytes { min: 5, max: 9, keep_min: 7 };
        check(kind, "4", Err("argument must be between 5 and 9 inclusive"));
        check(kind, "5", Ok("7"));
        check(kind, "8", Ok("8"));
    }

    #[test]
    fn memory_or_unlimited() {
        let kind = ValueKind::BytesOrUnlimited;
        for (arg, shown) in [("-1", "-1"), ("0", "0"), ("1kb", "1024"), ("9223372036854775807", "9223372036854775807")]
        {
            check(kind, arg, Ok(shown));
        }
        for arg in ["-2", "9223372036854775808"] {
            check(kind, arg, Err("argument must be between -1 and 9223372036854775807 inclusive"));
        }
        for arg in ["-1kb", "-10%", "x", "-"] {
            check(kind, arg, Err("argument must be a memory value"));
        }
    }

    #[test]
    fn memory_or_percent() {
        let kind = ValueKind::BytesOrPercent;
        for (arg, shown) in [("5%", "5%"), ("0%", "0"), ("100%", "100%"), ("5mb", "5242880")] {
            check(kind, arg, Ok(shown));
        }
        check(kind, "101%", Err("percentage argument must be less or equal to 100"));
        for arg in ["-1%", "x%", "%", " ", "-5"] {
            check(kind, arg, Err("argument must be a memory or percent value"));
        }
    }

    #[test]
    fn octal() {
        let kind = ValueKind::Octal { max: 0o777 };
        check(kind, "700", Ok("700"));
        check(kind, "", Ok("0"));
        check(kind, "1777", Err("argument must be between 0 and 777 inclusive"));
        check(kind, "77777777777777777777", Err("argument must be between 0 and 777 inclusive"));
        for arg in ["888", "a", "0o7", "-1", "+7"] {
            check(kind, arg, Err("argument couldn't be parsed as an octal number"));
        }
    }

    #[test]
    fn choices() {
        let kind = ValueKind::Choice(&["debug", "notice"]);
        check(kind, "NOTICE", Ok("notice"));
        check(kind, "x", Err("argument(s) must be one of the following: debug, notice"));
    }

    #[test]
    fn quoting_survives_the_splitter() {
        for text in ["", "a b", "\"\\'", "\n\r\t\x07\x1b\x7f", "ünï\u{2028}"] {
            let args = resp::splitargs::split_args(quoted(text).as_bytes());
            assert_eq!(args, Ok(vec![text.as_bytes().to_vec()]), "{text:?}");
        }
    }

    #[test]
    fn units() {
        for (bytes, text) in
            [(0, "0"), (1 << 30, "1gb"), (1025 << 20, "1025mb"), (3 << 10, "3kb"), (1048577, "1048577")]
        {
            assert_eq!(with_unit(bytes), text);
        }
    }
}
