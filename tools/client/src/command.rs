//! Commands and other types that can be sent as requests.

use resp::num::{write_f64, write_i64, write_u64};
use resp::parse::encode_request;

/// A type that can be sent: a [`Command`], or an array, slice or vector of any kind of strings.
///
/// ```
/// use client::{Command, Request};
///
/// let mut bytes = Vec::new();
/// ["GET", "key"].pack(&mut bytes);
/// Command::new("GET").arg("key").pack(&mut bytes);
/// assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
/// ```
pub trait Request {
    /// Appends the request as an array of bulk strings.
    fn pack(&self, out: &mut Vec<u8>);
}

impl<T: AsRef<[u8]>> Request for [T] {
    fn pack(&self, out: &mut Vec<u8>) {
        encode_request(self, out);
    }
}

impl<T: AsRef<[u8]>, const N: usize> Request for [T; N] {
    fn pack(&self, out: &mut Vec<u8>) {
        encode_request(self, out);
    }
}

impl<T: AsRef<[u8]>> Request for Vec<T> {
    fn pack(&self, out: &mut Vec<u8>) {
        encode_request(self, out);
    }
}

impl<R: Request + ?Sized> Request for &R {
    fn pack(&self, out: &mut Vec<u8>) {
        (**self).pack(out);
    }
}

/// A serialized request.
pub(crate) struct Packed<'p>(pub(crate) &'p [u8]);

impl Request for Packed<'_> {
    fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

/// A command under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// All arguments without gaps, starting with the name.
    bytes: Vec<u8>,
    /// End of each argument.
    ends: Vec<usize>,
}

impl Command {
    /// Returns a command without arguments. A name with several words (`CLIENT SETNAME`) becomes several arguments.
    #[must_use]
    pub fn new(name: &str) -> Self {
        name.split(' ').fold(Self::default(), |command, word| command.arg(word))
    }

    /// Returns the command with one more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Argument) -> Self {
        self.push(argument);
        self
    }

    /// Returns the command with more arguments.
    #[must_use]
    pub fn args<A: Argument>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        arguments.into_iter().for_each(|argument| self.push(argument));
        self
    }

    /// Adds an argument.
    pub fn push(&mut self, argument: impl Argument) {
        argument.append(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Returns the arguments, starting with the name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|i| {
            let start = if i == 0 { 0 } else { self.ends[i - 1] };
            &self.bytes[start..self.ends[i]]
        })
    }
}

impl Request for Command {
    fn pack(&self, out: &mut Vec<u8>) {
        encode_request(&self.iter().collect::<Vec<_>>(), out);
    }
}

/// A type that can be an argument: strings and numbers.
pub trait Argument {
    /// Appends the argument's bytes.
    fn append(&self, out: &mut Vec<u8>);
}

macro_rules! arguments {
    ($($type:ty: |$value:ident, $out:ident| $append:expr;)*) => {$(
        impl Argument for $type {
            fn append(&self, $out: &mut Vec<u8>) {
                let $value = self;
                $append;
            }
        }
    )*};
}

arguments! {
    str: |text, out| out.extend_from_slice(text.as_bytes());
    String: |text, out| out.extend_from_slice(text.as_bytes());
    [u8]: |bytes, out| out.extend_from_slice(bytes);
    Vec<u8>: |bytes, out| out.extend_from_slice(bytes);
    i64: |number, out| write_i64(out, *number);
    i32: |number, out| write_i64(out, i64::from(*number));
    u64: |number, out| write_u64(out, *number);
    u32: |number, out| write_u64(out, u64::from(*number));
    usize: |number, out| write_u64(out, *number as u64);
    f64: |number, out| write_f64(out, *number);
}

impl<const N: usize> Argument for [u8; N] {
    fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<A: Argument + ?Sized> Argument for &A {
    fn append(&self, out: &mut Vec<u8>) {
        (**self).append(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &Command, expected: &[&str]) {
        let args: Vec<_> = command.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
        assert_eq!(args, expected);
        let (mut packed, mut plain) = (Vec::new(), Vec::new());
        command.pack(&mut packed);
        expected.pack(&mut plain);
        assert_eq!(packed, plain);
    }

    #[test]
    fn arguments_of_all_kinds() {
        check(&Command::new("PING"), &["PING"]);
        check(&Command::new("CLIENT SETNAME").arg("x"), &["CLIENT", "SETNAME", "x"]);
        check(&Command::new("SET").arg(String::from("k")).arg(-5), &["SET", "k", "-5"]);
        check(&Command::new("ZADD").arg(1.5).arg(b"m").arg(7usize), &["ZADD", "1.5", "m", "7"]);
        check(&Command::new("MGET").args(["a", "", "c"]), &["MGET", "a", "", "c"]);
    }
}
