//! The inputs of a load in order, each with its format. Templates and files are checked before anything is sent.

use std::sync::Arc;

use crate::block::Block;
use crate::block_channel::BlockChannel;
use crate::exit::{Exit, Failure};
use crate::format::csv::{Csv, Dialect};
use crate::format::json::JsonLines;
use crate::format::json_array::JsonArray;
use crate::format::{Format, commands::Commands, fill};
use crate::input::Input;
use crate::limits::ARGS_MAX;
use crate::merge::{Merger, Merging};
use crate::source::{Origin, Streamed, Tally};
use crate::template::Templates;

/// Contents of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Commands, in RESP or one per line.
    Commands,
    /// CSV, with the templates' texts.
    Csv(Vec<Vec<u8>>, Dialect),
    /// JSON lines, with the templates' texts.
    JsonLines(Vec<Vec<u8>>),
    /// A JSON array, with the templates' texts.
    JsonArray(Vec<Vec<u8>>),
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Location of the input.
    pub origin: Origin,
    /// Contents of the input.
    pub content: Content,
}

impl Source {
    /// Adds another template to an input that has templates.
    pub fn add_template(&mut self, template: Vec<u8>) {
        match &mut self.content {
            Content::Commands => {}
            Content::Csv(templates, _) | Content::JsonLines(templates) | Content::JsonArray(templates) => {
                templates.push(template);
            }
        }
    }

    fn format(&self, command_bytes_max: usize, args_max: u64) -> Result<Box<dyn Format>, Failure> {
        let templates = |texts: &[Vec<u8>]| Templates::parse(texts).map_err(|reason| Failure::new(Exit::Usage, reason));
        Ok(match &self.content {
            Content::Commands => Box::new(Commands::new(command_bytes_max).with_args_max(args_max)),
            Content::Csv(texts, dialect) => Box::new(Csv::new(templates(texts)?, *dialect, command_bytes_max)),
            Content::JsonLines(texts) => Box::new(JsonLines::new(templates(texts)?, command_bytes_max)),
            Content::JsonArray(texts) => Box::new(JsonArray::new(templates(texts)?, command_bytes_max)),
        })
    }
}

/// The inputs of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The inputs in loading order.
    pub sources: Vec<Source>,
    /// Maximum size of a command, line or record, in bytes.
    pub command_bytes_max: usize,
}

impl Plan {
    /// Checks templates and files.
    ///
    /// # Errors
    /// Returns an error if a template is invalid or a file can't be read.
    pub fn check(&self) -> Result<(), Failure> {
        for source in &self.sources {
            source.format(self.command_bytes_max, ARGS_MAX)?;
            source.origin.check()?;
        }
        let from_stdin = self.sources.iter().filter(|source| source.origin == Origin::Stdin).count();
        if from_stdin > 1 {
            return Err(Failure::new(Exit::Usage, "standard input can only be read once"));
        }
        Ok(())
    }

    /// Returns true if standard input is among the inputs.
    pub fn reads_stdin(&self) -> bool {
        self.sources.iter().any(|source| source.origin == Origin::Stdin)
    }

    /// Returns the size of all inputs, if they are regular files.
    pub fn total_bytes(&self) -> Option<u64> {
        self.sources.iter().map(|source| source.origin.size()).sum()
    }

    /// Returns the names of the inputs for messages.
    pub fn names(&self) -> Vec<String> {
        self.sources.iter().map(|source| source.origin.name()).collect()
    }

    /// Returns true if the data from pipes is the same as before.
    ///
    /// # Errors
    /// Returns an error if the data can't be read.
    pub fn is_streamed_again(&self, before: &Streamed) -> Result<bool, Failure> {
        let tally = Arc::new(Tally::default());
        self.sources.iter().try_for_each(|source| source.origin.skim(&tally, before.bytes))?;
        Ok(tally.streamed() == *before)
    }

    /// Reads all inputs and puts their blocks into the queue, until the queue is stopped. `tally` counts the bytes
    /// read. Runs of commands are merged according to `merging`, and commands with more than `args_max` arguments are
    /// rejected. With `repeatable`, blocks and runs depend only on the input.
    pub fn read(
        &self,
        block_channel: &BlockChannel,
        tally: Arc<Tally>,
        merging: Merging,
        args_max: u64,
        repeatable: bool,
    ) {
        let merger = Merger::new(merging);
        let mut reading = Reading { block_channel, tally, next: 0, next_request: 0, merger, repeatable };
        let mut sources = self.sources.iter().enumerate();
        let end = sources.try_for_each(|(index, source)| {
            let mut format = source.format(self.command_bytes_max, args_max)?;
            reading.source(index, source, &mut *format)
        });
        block_channel.end(end);
    }
}

struct Reading<'b> {
    block_channel: &'b BlockChannel,
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
            // Full blocks would delay slow input until more input arrives.
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
            let mut block = self.block_channel.spare();
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
        self.block_channel.put(block)
    }
}
