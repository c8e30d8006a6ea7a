//! Reads the commands of an append-only file.

use std::io::Read;

use persistence::block::empty_block;
use persistence::recovery::{Apply, Damage, Extent, Place, read_file, take_command};

use crate::finding::{Commands, Flaw, Verdict};
use crate::shown;

const TORN: &str = "The server or the machine stopped during this write. A server cuts it off when it starts \
                    (`aof-load-truncated yes`); `penstock check --fix` does so now.";
const DAMAGED: &str = "Restore the file from a backup or a replica. Without one, keep the bytes before the flaw";

/// Reads commands up to the end of the file and counts them in `commands`. The commands begin at byte `start` of the
/// file.
///
/// # Errors
/// Returns the first flaw. `commands` then holds the counts up to it. For a torn end, `commands.whole_bytes` is the
/// offset of the torn part.
pub fn read(bytes: &mut dyn Read, start: u64, commands: &mut Commands) -> Result<(), Flaw> {
    let mut counting = Counting { commands, is_in_transaction: false, args: ArgumentRanges::default() };
    let read = read_file(bytes, &mut counting);
    match read {
        Ok(extent) => {
            let Extent { whole, torn, link, is_cut } = extent;
            commands.whole_bytes = start + whole;
            commands.closing = if is_cut { empty_block(whole, link) } else { Vec::new() };
            if extent.is_whole() { Ok(()) } else { Err(torn_flaw(start + whole, torn)) }
        }
        Err(Damage::Io(error)) => Err(Flaw {
            verdict: Verdict::Broken,
            offset: None,
            key: None,
            what: format!("reading failed: {error}"),
            advice: "Check the disk.".into(),
        }),
        Err(Damage::Bytes { offset, why }) => {
            commands.whole_bytes = start + offset;
            Err(damage(start + offset, &why))
        }
    }
}

/// Returns the flaw of a file that ends within a write.
pub fn torn_flaw(offset: u64, bytes: u64) -> Flaw {
    Flaw {
        verdict: Verdict::Torn,
        offset: Some(offset),
        key: None,
        what: match bytes {
            0 => format!("the end of the last block, from byte {offset} on, was not written"),
            _ => format!("the last {}, from byte {offset} on, were not written whole", shown::count(bytes, "byte")),
        },
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

/// Positions of a command's arguments. The allocation is reused for the next command.
#[derive(Default)]
struct ArgumentRanges(Vec<std::ops::Range<usize>>);

/// Counts commands instead of executing them.
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
    fn commands(&mut self, commands: &[u8], _place: &Place) -> Result<(), (usize, String)> {
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
