//! What a load consists of: inputs in order, each with its format. Templates and files are looked at before anything is
//! sent.

use std::sync::Arc;

use crate::belt::Belt;
use crate::block::Block;
use crate::exit::{Exit, Failure};
use crate::format::csv::{Csv, Dialect};
use crate::format::json::JsonLines;
use crate::format::{Format, commands::Commands, fill};
use crate::input::Input;
use crate::limits::ARGS_MAX;
use crate::merge::{Merger, Merging};
use crate::source::{Origin, Streamed, Tally};
use crate::template::Template;

/// What an input is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Commands, in RESP or a line each.
    Commands,
    /// CSV, and the template's text.
    Csv(Vec<u8>, Dialect),
    /// JSON lines, and the template's text.
    JsonLines(Vec<u8>),
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it is.
    pub origin: Origin,
    /// How to read it.
    pub content: Content,
}

impl Source {
    fn format(&self, command_bytes_max: usize, args_max: u64) -> Result<Box<dyn Format>, Failure> {
        let template = |text: &[u8]| Template::parse(text).map_err(|reason| Failure::new(Exit::Usage, reason));
        Ok(match &self.content {
            Content::Commands => Box::new(Commands::new(command_bytes_max).with_args_max(args_max)),
            Content::Csv(text, dialect) => Box::new(Csv::new(template(text)?, *dialect, command_bytes_max)),
            Content::JsonLines(text) => Box::new(JsonLines::new(template(text)?, command_bytes_max)),
        })
    }
}

/// The inputs of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In the order in which they are loaded.
    pub sources: Vec<Source>,
    /// Largest command, line or record, in bytes.
    pub command_bytes_max: usize,
}

impl Plan {
    /// Finds out early what can't work.
    ///
    /// # Errors
    /// A template is wrong, or a file can't be read.
    pub fn check(&self) -> Result<(), Failure> {
        for source in &self.sources {
            source.format(self.command_bytes_max, ARGS_MAX)?;
            source.origin.check()?;
        }
        let from_stdin = self.sources.iter().filter(|source| source.origin == Origin::Stdin).count();
        if from_stdin > 1 {
            return Err(Failure::new(Exit::Usage, "standard input can be read only once"));
        }
        Ok(())
    }

    /// Whether standard input is among the inputs.
    pub fn reads_stdin(&self) -> bool {
        self.sources.iter().any(|source| source.origin == Origin::Stdin)
    }

    /// Bytes of all inputs, if they are regular files.
    pub fn total_bytes(&self) -> Option<u64> {
        self.sources.iter().map(|source| source.origin.size()).sum()
    }

    /// The inputs' names in messages.
    pub fn names(&self) -> Vec<String> {
        self.sources.iter().map(|source| source.origin.name()).collect()
    }

    /// Whether what comes from pipes is what came before.
    ///
    /// # Errors
    /// It can't be read.
    pub fn is_streamed_again(&self, before: &Streamed) -> Result<bool, Failure> {
        let tally = Arc::new(Tally::default());
        self.sources.iter().try_for_each(|source| source.origin.skim(&tally, before.bytes))?;
        Ok(tally.streamed() == *before)
    }

    /// Reads all inputs and puts their blocks on the belt, until it is stopped. `tally` counts what is read, and
    /// runs of commands are merged as `merging` says. No command has more than `args_max` arguments. If `repeatable`,
    /// blocks and runs depend on nothing but the input.
    pub fn read(&self, belt: &Belt, tally: Arc<Tally>, merging: Merging, args_max: u64, repeatable: bool) {
        let merger = Merger::new(merging);
        let mut reading = Reading { belt, tally, next: 0, next_request: 0, merger, repeatable };
        let mut sources = self.sources.iter().enumerate();
        let end = sources.try_for_each(|(index, source)| {
            let mut format = source.format(self.command_bytes_max, args_max)?;
            reading.source(index, source, &mut *format)
        });
        belt.end(end);
    }
}

struct Reading<'b> {
    belt: &'b Belt,
    tally: Arc<Tally>,
    next: u64,
    next_request: u64,
    merger: Merger,
    repeatable: bool,
}

impl Reading<'_> {
    fn source(&mut self, index: usize, source: &Source, format: &mut dyn Format) -> Result<(), Failure> {
        let mut input = source.origin.open(self.tally.clone())?;
        let merging = self.merger.merging;
        let full = self.repeatable && !merging.is_none();
        if full && source.origin.is_stream() {
            // Full blocks would keep what comes slowly waiting for what comes next.
            self.merger.merging = Merging::default();
        }
        let loaded = self.blocks(index, source, format, &mut input, full && !source.origin.is_stream());
        self.merger.merging = merging;
        loaded
    }

    fn blocks(
        &mut self,
        index: usize,
        source: &Source,
        format: &mut dyn Format,
        input: &mut Input,
        full: bool,
    ) -> Result<(), Failure> {
        loop {
            let mut block = self.belt.spare();
            (block.input, block.first, block.first_request) = (index, self.next, self.next_request);
            block.merger = std::mem::take(&mut self.merger);
            let filled = fill(format, input, &mut block, full);
            block.end_run();
            self.merger = std::mem::take(&mut block.merger);
            (self.next, self.next_request) = (block.end(), block.end_request());
            block.input_bytes = self.tally.bytes();
            let wanted = block.is_empty() || self.put(block);
            match filled {
                Ok(true) if wanted => {}
                Ok(_) => return Ok(()),
                Err(broken) => return Err(broken.into_failure(&source.origin.name())),
            }
        }
    }

    fn put(&self, block: Block) -> bool {
        self.belt.put(block)
    }
}
