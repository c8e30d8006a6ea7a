//! Scripts that are sent as text.

use super::{Seen, Watch};
use crate::findings::{Kind, Sighting};
use crate::hash::{self, mix};
use crate::loops::Steps;

/// The beginning of a command in a script.
const SCRIPT_CALL: &[u8] = b"redis.";

impl Watch<'_, '_> {
    /// Handles a script that is sent as text: checks whether the same text was sent before.
    pub(super) fn script(&mut self, seen: &Seen<'_>) {
        let text = self.trip.command.get(1);
        let hash = hash::argument(self.advisor.config.seed, text) | 1;
        if !self.last.scripts.contains(&hash) {
            self.changing_script(seen, text);
            let place = usize::from(self.last.next_script) % self.last.scripts.len();
            self.last.scripts[place] = hash;
            self.last.next_script = self.last.next_script.wrapping_add(1);
            return;
        }
        self.record(Sighting {
            made: 1,
            needed: 1,
            bytes: text.len() as u64,
            ..self.sighting(Kind::ScriptInFull, Steps::one(seen.shape, false))
        });
    }

    /// Handles a script with a new text: checks whether it differs from the last one only in its values.
    fn changing_script(&mut self, seen: &Seen<'_>, text: &[u8]) {
        let template = template(text);
        let is_alike = std::mem::replace(&mut self.last.script_template, template) == template;
        // A script without calls has nothing to save.
        if is_alike && text.windows(SCRIPT_CALL.len()).any(|part| part == SCRIPT_CALL) {
            self.record(Sighting {
                made: 1,
                needed: 1,
                bytes: text.len() as u64,
                ..self.sighting(Kind::ChangingScript, Steps::one(seen.shape, false))
            });
        }
    }
}

/// Returns the hash of a script's text without its numbers and without the texts in quotes.
fn template(text: &[u8]) -> u64 {
    let (mut hash, mut quote) = (0, None);
    for &byte in text {
        let is_quote = matches!(byte, b'"' | b'\'');
        match quote {
            Some(open) if open == byte => quote = None,
            Some(_) => {}
            None if is_quote => quote = Some(byte),
            None if byte.is_ascii_digit() => {}
            None => hash = mix(hash, byte.into()),
        }
    }
    hash | 1
}
