//! Rules that need the names of keys: names for loops over keys with few different words in one place, and the keys of frameworks.

use super::{Seen, Watch};
use crate::batches::SmallBatches;
use crate::hash::{self, mix};
use crate::pattern;
use crate::reads::Repeated;

/// Keys of Django's sessions. Django reads a session again before it saves it, and no application can change this.
const DJANGO_SESSIONS: &str = ":django.contrib.sessions.";

impl Watch<'_, '_> {
    /// True if a framework repeats these reads by itself.
    pub(super) fn is_framework(&self, repeated: &Repeated) -> bool {
        let shape = self.advisor.shapes.get(repeated.shape);
        repeated.one_key && shape.is_some_and(|shape| shape.pattern.contains(DJANGO_SESSIONS))
    }

    /// Names the steps of a loop of frames that has just begun, and takes the key as a sample of its step.
    #[cold]
    pub(super) fn merged(&mut self, seen: &Seen<'_>) {
        let steps = self.last.loops.unnamed();
        if !steps.is_empty() {
            let names: Vec<u64> = steps.iter().map(|(frame, shapes)| self.merged_shape(*frame, shapes)).collect();
            self.last.loops.name(&names);
        }
        if self.advisor.config.samples {
            self.last.samples.take(self.last.loops.last_step(), seen.key, self.last.trip);
        }
    }

    /// Returns the shape of the first commands of small batches.
    pub(super) fn batches_shape(&mut self, batches: &SmallBatches) -> u64 {
        match batches.other {
            0 => batches.shape,
            other => self.merged_shape(batches.frame, &[batches.shape, other]),
        }
    }

    /// Returns the shape of all keys of these shapes. The table of shapes gets it if it is new.
    fn merged_shape(&mut self, frame: u32, shapes: &[u64]) -> u64 {
        let known = |shape: &u64| self.advisor.shapes.get(*shape).map(|shape| (&shape.command, &*shape.pattern));
        let mut texts = shapes.iter().filter_map(known);
        let (Some((command, first)), false) = (texts.next(), shapes.len() < 2) else {
            return shapes.first().copied().unwrap_or_default();
        };
        let command = command.clone();
        let text = texts.fold(first.to_owned(), |all, (_, text)| pattern::merged(&all, text).unwrap_or(all));
        let shape = mix(frame.into(), hash::bytes(0, text.as_bytes()));
        if self.advisor.shapes.touch(shape).is_none() {
            self.advisor.shapes.insert(shape, frame, command.as_bytes(), text);
        }
        if shapes.iter().any(|shape| self.last.unwaited.knows(*shape)) {
            self.last.unwaited.remember(shape, self.last.trip);
        }
        shape
    }
}
