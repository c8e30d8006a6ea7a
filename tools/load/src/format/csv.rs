//! CSV: a template converts a record to a command. Quoting and line ends follow RFC 4180, leniently.
//!
//! The first record names the columns, unless there is no header. Columns can also be named by number, from 1. Records
//! with another number of fields than the first, and records with an open quote, are rejected.

use csv_core::{ReadRecordResult, ReaderBuilder};

use super::{Broken, Format, too_long};
use crate::block::Block;
use crate::exit::Exit;
use crate::input::Input;
use crate::limits::{BUFFER_BYTES_KEPT, CSV_FIELDS, SHOWN_BYTES};
use crate::template::{Template, Templates};

/// Syntax of a CSV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Separator of fields.
    pub delimiter: u8,
    /// True if the first record names the columns.
    pub has_header: bool,
}

/// Reads records.
pub struct Csv {
    templates: Templates,
    dialect: Dialect,
    record_bytes_max: usize,
    reader: csv_core::Reader,
    record: Record,
    /// Known after the first record.
    columns: Option<Columns>,
}

/// Mapping from the templates' fields to columns.
struct Columns {
    /// Number of columns in the first record; all records must have the same number.
    count: usize,
    /// For each template, the column of each of its names; `None` for a missing column with a default.
    of_fields: Vec<Vec<Option<usize>>>,
}

/// The current record.
#[derive(Default)]
struct Record {
    /// The unquoted fields without gaps.
    bytes: Vec<u8>,
    length: usize,
    /// End of each field.
    ends: Vec<usize>,
    fields: usize,
    /// Line where the record began; `None` between records.
    line: Option<u64>,
    too_long: bool,
}

impl Record {
    fn field(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// Returns the record as shown in error reports.
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

    /// Makes room. The contents of a record beyond the limits are dropped.
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
    /// Returns a reader that converts records of at most `record_bytes_max` bytes to commands.
    pub fn new(templates: Templates, dialect: Dialect, record_bytes_max: usize) -> Csv {
        Csv {
            templates,
            dialect,
            record_bytes_max,
            reader: ReaderBuilder::new().delimiter(dialect.delimiter).build(),
            record: Record::default(),
            columns: None,
        }
    }

    /// Reads on. Returns true if a record is complete.
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

    /// Skips blank lines. Returns false if no other bytes are available.
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

    /// Ends the last record, which has no line end. If a line end becomes part of a field, a quote is open.
    fn finish(&mut self) -> bool {
        let record = &mut self.record;
        let (bytes, ends) = (&mut record.bytes[record.length..], &mut record.ends[record.fields..]);
        let (result, _, written, ended) = self.reader.read_record(b"\n", bytes, ends);
        record.length += written;
        record.fields += ended;
        matches!(result, ReadRecordResult::Record)
    }

    /// Converts the record to commands, or to the header. Returns false if the block is full before the last command;
    /// the next call proceeds with the others.
    fn take_record(&mut self, block: &mut Block) -> Result<bool, Broken> {
        let line = self.record.line.unwrap_or(0);
        if self.record.too_long {
            let hint = format!("{}, or a quote is not closed", too_long("record", self.record_bytes_max));
            block.reject(line, hint, b"");
            return Ok(true);
        }
        let columns = match &self.columns {
            Some(columns) => columns,
            None => {
                let bound = self.bind()?;
                let columns = self.columns.insert(bound);
                if self.dialect.has_header {
                    return Ok(true);
                }
                columns
            }
        };
        let (record, delimiter) = (&self.record, self.dialect.delimiter);
        if record.fields != columns.count {
            let reason = format!("{} fields instead of {}", record.fields, columns.count);
            block.reject(line, reason, &record.shown(delimiter));
            return Ok(true);
        }
        let shown = std::cell::OnceCell::new();
        let text = || shown.get_or_init(|| record.shown(delimiter)).as_slice();
        while let Some(index) = self.templates.current() {
            if self.templates.has_begun() && block.is_full() {
                return Ok(false);
            }
            let field = |slot: usize| columns.of_fields[index][slot].map(|column| record.field(column));
            block.command(line, text, |out| self.templates.all()[index].encode(field, out));
            self.templates.advance();
        }
        self.templates.restart();
        Ok(true)
    }

    /// Maps the fields of all templates to the columns of the first record.
    fn bind(&self) -> Result<Columns, Broken> {
        let of_fields =
            self.templates.all().iter().map(|template| self.bind_fields(template)).collect::<Result<_, _>>()?;
        Ok(Columns { count: self.record.fields, of_fields })
    }

    fn bind_fields(&self, template: &Template) -> Result<Vec<Option<usize>>, Broken> {
        let record = &self.record;
        let names: Vec<_> = (0..record.fields).map(|index| String::from_utf8_lossy(record.field(index))).collect();
        let find = |name: &String| {
            let by_name = names.iter().position(|known| self.dialect.has_header && known.trim() == name.trim());
            let by_number = || name.parse::<usize>().ok()?.checked_sub(1).filter(|column| *column < record.fields);
            let column = by_name.or_else(by_number);
            if column.is_none() && !template.has_default(name) {
                return Err(no_such_column(name, &names, self.dialect.has_header));
            }
            Ok(column)
        };
        template.names().iter().map(find).collect()
    }
}

fn no_such_column(name: &str, names: &[std::borrow::Cow<'_, str>], has_header: bool) -> Broken {
    let known = if has_header {
        format!("the columns are {}", crate::shown::line(names.join(", ").as_bytes()))
    } else {
        format!("without a header columns are numbered from {{1}} to {{{}}}", names.len())
    };
    Broken { line: None, reason: format!("there is no column '{name}' for the template: {known}"), exit: Exit::Usage }
}

impl Format for Csv {
    fn take(&mut self, input: &mut Input, block: &mut Block) -> Result<(), Broken> {
        while !block.is_full() {
            if self.templates.has_begun() || self.advance(input) {
                if !self.take_record(block)? {
                    break;
                }
            } else if input.has_ended() && self.record.line.is_some() {
                let line = self.record.line.unwrap_or(0);
                block.reject(line, "a quote in this record is not closed before the end of the input", b"");
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
        move || Box::new(Csv::new(Templates::parse(&[template.as_bytes().to_vec()]).unwrap(), dialect, LIMIT))
    }

    #[test]
    fn each_template_makes_a_command_of_each_record() {
        let dialect = Dialect { delimiter: b',', has_header: true };
        let texts = [b"SET {id} {x}".to_vec(), b"SADD ids {id} {y:-none}".to_vec()];
        let csv = || Box::new(Csv::new(Templates::parse(&texts).unwrap(), dialect, LIMIT)) as Box<dyn Format>;
        check(csv, "id,x\n1,a\n2,b", &["2: SET 1 a", "2: SADD ids 1 none", "3: SET 2 b", "3: SADD ids 2 none"]);
        // Blocks end within records, and nothing is lost or repeated.
        let rows: String = (0..3000).map(|row| format!("{row},v\n")).collect();
        let found = super::super::testing::read(&mut *csv(), format!("id,x\n{rows}").as_bytes(), 1 << 20);
        let expected = (0..3000)
            .flat_map(|row| [format!("{}: SET {row} v", row + 2), format!("{}: SADD ids {row} none", row + 2)]);
        assert_eq!(found, expected.collect::<Vec<_>>());
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
            &["0!! there is no column 'year' for the template: the columns are a, b"],
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
            &["2: ZADD movies 1 A", "3! a quote in this record is not closed before the end of the input"],
        );
        check(
            csv("{c} x", true),
            "c\nMONITOR\nPING\n",
            &["2! the command ends or takes over the connection, so it can't be part of a load", "3: PING x"],
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
