//! Reading the commands of an append-only file.

use std::io::Read;

use persistence::recovery::{Apply, Damage, Extent, read_file, take_command};

use crate::finding::{Commands, Flaw, Verdict};
use crate::shown;

const TORN: &str = "It was being written when the server or the machine ended. A server cuts it off when it starts \
                    (`aof-load-truncated yes`); `penstock check --fix` does so now.";
const DAMAGED: &str = "Restore the file from a backup or a replica. Without one, what precedes the flaw can be kept";

/// Reads commands to the end of a file; what they are is in `commands`, as far as they could be read. They begin at byte `start` of
/// the file.
///
/// # Errors
/// What is wrong. If that is a torn end, `commands.whole_bytes` says where it begins.
pub fn read(bytes: &mut dyn Read, start: u64, commands: &mut Commands) -> Result<(), Flaw> {
    let mut counting = Counting { commands, is_in_transaction: false, args: ArgumentRanges::default() };
    let read = read_file(bytes, &mut counting);
    match read {
        Ok(Extent { whole, torn }) => {
            commands.whole_bytes = start + whole;
            if torn == 0 { Ok(()) } else { Err(torn_flaw(start + whole, torn)) }
        }
        Err(Damage::Io(error)) => Err(Flaw {
            verdict: Verdict::Broken,
            offset: None,
            key: None,
            what: format!("reading failed: {error}"),
            advice: "Look at the disk.".into(),
        }),
        Err(Damage::Bytes { offset, why }) => {
            commands.whole_bytes = start + offset;
            Err(damage(start + offset, &why))
        }
    }
}

/// That the last bytes of a file are the beginning of something.
pub fn torn_flaw(offset: u64, bytes: u64) -> Flaw {
    Flaw {
        verdict: Verdict::Torn,
        offset: Some(offset),
        key: None,
        what: format!("the last {}, from byte {offset} on, were not written whole", shown::count(bytes, "byte")),
        advice: TORN.into(),
    }
}

fn damage(offset: u64, why: &str) -> Flaw {
    Flaw {
        verdict: Verdict::Broken,
        offset: Some(offset),
        key: None,
        what: format!("{why}, at byte {offset}"),
        advice: format!("{DAMAGED}: `head -c {offset} FILE >FILE.kept`."),
    }
}

/// Positions of a command's arguments that are kept from one command to the next.
#[derive(Default)]
struct ArgumentRanges(Vec<std::ops::Range<usize>>);

/// Counts commands instead of running them.
struct Counting<'c> {
    commands: &'c mut Commands,
    is_in_transaction: bool,
    args: ArgumentRanges,
}

impl Counting<'_> {
    fn note(&mut self, name: &[u8], first: Option<&[u8]>) -> Result<(), String> {
        let name = shown::name(&name.to_ascii_uppercase());
        match &*name {
            "MULTI" if self.is_in_transaction => return Err("MULTI within a transaction".into()),
            "MULTI" => {
                self.is_in_transaction = true;
                self.commands.transactions += 1;
                return Ok(());
            }
            "EXEC" | "DISCARD" if !self.is_in_transaction => return Err(format!("{name} without MULTI")),
            "EXEC" | "DISCARD" => {
                self.is_in_transaction = false;
                return Ok(());
            }
            "SELECT" => {
                let number: Option<u64> = first.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
                self.commands.databases.extend(number);
            }
            _ => {}
        }
        self.commands.count += 1;
        self.commands.names.count(&name);
        Ok(())
    }
}

impl Apply for Counting<'_> {
    fn commands(&mut self, commands: &[u8]) -> Result<(), (usize, String)> {
        let (mut at, mut args) = (0, std::mem::take(&mut self.args.0));
        while let Some(bytes) = take_command(&commands[at..], &mut args) {
            let arg = |index: usize| args.get(index).and_then(|range| commands[at..].get(range.clone()));
            self.note(arg(0).unwrap_or_default(), arg(1)).map_err(|why| (at, why))?;
            at += bytes;
        }
        self.args.0 = args;
        Ok(())
    }

    fn own(&mut self, _record: &[u8]) -> Result<(), String> {
        self.commands.records += 1;
        Ok(())
    }

    fn block(&mut self) {
        self.commands.by_penstock = true;
        self.commands.blocks += 1;
    }

    fn time(&mut self, unix_s: u64) {
        let first = self.commands.noted_s.map_or(unix_s, |(first, _)| first);
        self.commands.noted_s = Some((first, unix_s));
    }
}
