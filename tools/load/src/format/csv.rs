//! CSV: a record becomes a command by a template. Quoting and line ends are those of RFC 4180, leniently.
//!
//! The first record names the columns, unless there is no header; a column can be named by its number, too, from 1.
//! A record with another number of fields than the first, and a quote that is never closed, are rejected.

use csv_core::{ReadRecordResult, ReaderBuilder};

use super::{Broken, Format, too_long};
use crate::block::Block;
use crate::exit::Exit;
use crate::input::Input;
use crate::limits::{BUFFER_BYTES_KEPT, CSV_FIELDS, SHOWN_BYTES};
use crate::template::Template;

/// How a CSV file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Between fields.
    pub delimiter: u8,
    /// Whether the first record names the columns.
    pub has_header: bool,
}

/// Reads records.
pub struct Csv {
    template: Template,
    dialect: Dialect,
    record_bytes_max: usize,
    reader: csv_core::Reader,
    record: Record,
    /// Known once the first record was read.
    columns: Option<Columns>,
}

/// Which columns the template's fields are.
struct Columns {
    /// Of the first record, and so of all.
    count: usize,
    /// By the index of a name in the template. None where the template has a default for a column that isn't there.
    of_field: Vec<Option<usize>>,
}

/// The record that is being read.
#[derive(Default)]
struct Record {
    /// The fields, unquoted, one behind the other.
    bytes: Vec<u8>,
    length: usize,
    /// Where they end.
    ends: Vec<usize>,
    fields: usize,
    /// Where it began; none between records.
    line: Option<u64>,
    too_long: bool,
}

impl Record {
    fn field(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// As an error report shows it.
    fn shown(&self, delimiter: u8) -> Vec<u8> {
        let mut text = Vec::new();
        for index in 0..self.fields {
            if index > 0 {
                text.push(delimiter);
            }
            text.extend_from_slice(self.field(index));
            if text.len() > SHOWN_BYTES {
                break;
            }
        }
        text
    }

    /// Makes room; what is beyond the limits is forgotten as it comes.
    fn grow(&mut self, bytes_max: usize) {
        self.too_long |= self.length > bytes_max || self.fields >= CSV_FIELDS;
        if self.too_long {
            (self.length, self.fields) = (0, 0);
        }
        if self.length == self.bytes.len() {
            self.bytes.resize((2 * self.length).max(4096), 0);
        }
        if self.fields == self.ends.len() {
            self.ends.resize((2 * self.fields).max(64), 0);
        }
    }

    fn clear(&mut self) {
        (self.length, self.fields, self.line, self.too_long) = (0, 0, None, false);
        if self.bytes.len() > BUFFER_BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }
}

impl Csv {
    /// A reader that makes commands of records, which are at most so many bytes long.
    pub fn new(template: Template, dialect: Dialect, record_bytes_max: usize) -> Csv {
        Csv {
            template,
            dialect,
            record_bytes_max,
            reader: ReaderBuilder::new().delimiter(dialect.delimiter).build(),
            record: Record::default(),
            columns: None,
        }
    }

    /// Reads on; true if a record is complete.
    fn advance(&mut self, input: &mut Input) -> bool {
        if self.record.line.is_none() && !self.begin_record(input) {
            return false;
        }
        loop {
            self.record.grow(self.record_bytes_max);
            let record = &mut self.record;
            let unread = input.unread();
            if unread.is_empty() {
                return input.has_ended() && self.finish();
            }
            let (result, read, written, ended) =
                self.reader.read_record(unread, &mut record.bytes[record.length..], &mut record.ends[record.fields..]);
            record.length += written;
            record.fields += ended;
            let lines = memchr::memchr_iter(b'\n', &unread[..read]).count() as u64;
            input.take(read, lines);
            if matches!(result, ReadRecordResult::Record) {
                return true;
            }
        }
    }

    /// Skips blank lines; false if nothing else is there yet.
    fn begin_record(&mut self, input: &mut Input) -> bool {
        let unread = input.unread();
        let blank = unread.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let lines = memchr::memchr_iter(b'\n', &unread[..blank]).count() as u64;
        input.take(blank, lines);
        if input.unread().is_empty() {
            return false;
        }
        self.record.line = Some(input.line());
        true
    }

    /// Ends the last record, which has no line end. A line end that is taken as part of a field shows an open quote.
    fn finish(&mut self) -> bool {
        let record = &mut self.record;
        let (bytes, ends) = (&mut record.bytes[record.length..], &mut record.ends[record.fields..]);
        let (result, _, written, ended) = self.reader.read_record(b"\n", bytes, ends);
        record.length += written;
        record.fields += ended;
        matches!(result, ReadRecordResult::Record)
    }

    /// Makes the record a command, or the header.
    fn take_record(&mut self, block: &mut Block) -> Result<(), Broken> {
        let line = self.record.line.unwrap_or(0);
        if self.record.too_long {
            let hint = format!("{}, or a quote is not closed", too_long("record", self.record_bytes_max));
            block.reject(line, hint, b"");
            return Ok(());
        }
        let columns = match &self.columns {
            Some(columns) => columns,
            None => {
                let bound = self.bind()?;
                let columns = self.columns.insert(bound);
                if self.dialect.has_header {
                    return Ok(());
                }
                columns
            }
        };
        let (record, delimiter) = (&self.record, self.dialect.delimiter);
        if record.fields != columns.count {
            let reason = format!("{} fields instead of {}", record.fields, columns.count);
            block.reject(line, reason, &record.shown(delimiter));
            return Ok(());
        }
        let field = |slot: usize| columns.of_field[slot].map(|column| record.field(column));
        let shown = std::cell::OnceCell::new();
        let text = || shown.get_or_init(|| record.shown(delimiter)).as_slice();
        block.command(line, text, |out| self.template.encode(field, out));
        Ok(())
    }

    /// Finds the template's fields among the columns that the first record names.
    fn bind(&self) -> Result<Columns, Broken> {
        let record = &self.record;
        let names: Vec<_> = (0..record.fields).map(|index| String::from_utf8_lossy(record.field(index))).collect();
        let find = |name: &String| {
            let by_name = names.iter().position(|known| self.dialect.has_header && known.trim() == name.trim());
            let by_number = || name.parse::<usize>().ok()?.checked_sub(1).filter(|column| *column < record.fields);
            let column = by_name.or_else(by_number);
            if column.is_none() && !self.template.has_default(name) {
                return Err(no_such_column(name, &names, self.dialect.has_header));
            }
            Ok(column)
        };
        let of_field = self.template.names().iter().map(find).collect::<Result<_, _>>()?;
        Ok(Columns { count: record.fields, of_field })
    }
}

fn no_such_column(name: &str, names: &[std::borrow::Cow<'_, str>], has_header: bool) -> Broken {
    let known = if has_header {
        format!("it has {}", crate::shown::line(names.join(", ").as_bytes()))
    } else {
        format!("without a header columns are numbered from {{1}} to {{{}}}", names.len())
    };
    Broken { line: None, reason: format!("there is no column '{name}' for the template: {known}"), exit: Exit::Usage }
}

impl Format for Csv {
    fn take(&mut self, input: &mut Input, block: &mut Block) -> Result<(), Broken> {
        while !block.is_full() {
            if self.advance(input) {
                self.take_record(block)?;
            } else if input.has_ended() && self.record.line.is_some() {
                let line = self.record.line.unwrap_or(0);
                block.reject(line, "a quote is opened in this record and not closed before the input's end", b"");
            } else {
                break;
            }
            self.record.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    const LIMIT: usize = 5_000;

    fn csv(template: &'static str, has_header: bool) -> impl Fn() -> Box<dyn Format> {
        let dialect = Dialect { delimiter: b',', has_header };
        move || Box::new(Csv::new(Template::parse(template.as_bytes()).unwrap(), dialect, LIMIT))
    }

    fn check_movies(text: &str, expected: &[&str]) {
        check(csv("ZADD movies {year} {title}", true), text, expected);
    }

    #[test]
    fn records_become_commands() {
        check_movies("", &[]);
        check_movies("title,year\n", &[]);
        check_movies("title,year\nAlien,1979\n", &["2: ZADD movies 1979 Alien"]);
        check_movies(
            "\u{feff}title , year\r\n\"A, \"\"B\"\"\",1\r\n\r\n\"C\nD\",2\r\nE,3",
            &["2: ZADD movies 1 \"A, \\\"B\\\"\"", "4: ZADD movies 2 \"C\\nD\"", "6: ZADD movies 3 E"],
        );
        check_movies("title,year\n,\n\"\",\"\"\n", &["2: ZADD movies \"\" \"\"", "3: ZADD movies \"\" \"\""]);
    }

    #[test]
    fn columns_can_be_numbered() {
        check(csv("SET {1} {2}", true), "a,b\n1,2\n", &["2: SET 1 2"]);
        check(csv("SET {1} {2}", false), "a,b\n1,2\n", &["1: SET a b", "2: SET 1 2"]);
        check(
            csv("SET {a} {2}", false),
            "a,b\n",
            &["0!! there is no column 'a' for the template: without a header columns are numbered from {1} to {2}"],
        );
        check(
            csv("SET {a} {year}", true),
            "a,b\n1,2\n",
            &["0!! there is no column 'year' for the template: it has a, b"],
        );
        check(csv("SET {a} {year:-0}", true), "a,b\n1,2\n", &["2: SET 1 0"]);
    }

    #[test]
    fn broken_records_are_rejected_and_the_next_ones_taken() {
        check_movies(
            "title,year\nA\nB,1\nC,2,3\nD,4",
            &["2! 1 fields instead of 2", "3: ZADD movies 1 B", "4! 3 fields instead of 2", "5: ZADD movies 4 D"],
        );
        check_movies(
            "title,year\nA,1\n\"B,2\nC,3\n",
            &["2: ZADD movies 1 A", "3! a quote is opened in this record and not closed before the input's end"],
        );
        check(
            csv("{c} x", true),
            "c\nMONITOR\nPING\n",
            &["2! it ends or takes over the connection, so it can't be part of a load", "3: PING x"],
        );
    }

    #[test]
    fn a_record_has_a_limit() {
        let long = "x".repeat(3 * LIMIT);
        let reason =
            "3! the record is longer than 5000 bytes; --max-command raises the limit, or a quote is not closed";
        check_movies(
            &format!("title,year\nA,1\n{long},2\nB,3\n"),
            &["2: ZADD movies 1 A", reason, "4: ZADD movies 3 B"],
        );
        let many = ",".repeat(CSV_FIELDS + 5);
        let text = format!("title,year\nA,1\n{many}\nB,3\n");
        let found = super::super::testing::read(&mut *csv("SET {title} {year}", true)(), text.as_bytes(), 1 << 16);
        assert_eq!(found, ["2: SET A 1", reason, "4: SET B 3"]);
    }
}
