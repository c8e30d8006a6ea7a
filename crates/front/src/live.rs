//! Live views of the console: commands as they run (MONITOR), and published messages, as lines of JSON.
//!
//! A view has a connection to the server of its own. Its queue is bounded: a browser that is too slow misses lines, and
//! learns their number. Each second a view reports its counts, which also shows that it is alive.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use resp::parse::Value;
use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval};

use crate::commands::Words;
use crate::failure::Failure;
use crate::json::{self, Strings};
use crate::serve::Port;
use crate::upstream_pool::{Admitted, Feed};
use crate::{ConsoleMode, Terms};

/// Largest number of live views at a time.
const VIEWS_MAX: usize = 8;
/// Largest number of lines per second in a view of commands.
const RATE_MAX: u64 = 1000;
/// Largest number of lines on their way to a browser.
const QUEUE_MAX: usize = 256;
/// Longest shown text of a command or a message; the rest is cut off. With [`QUEUE_MAX`] it bounds the memory of a view.
const TEXT_BYTES_MAX: usize = 2048;
/// Interval of the counts.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The content of a view.
pub(crate) enum View {
    /// Commands that contain a text, at most `rate` per second.
    Commands {
        rate: u64,
        /// In lower case.
        text: Vec<u8>,
    },
    /// Messages of channels and patterns.
    Messages { names: Words },
}

impl View {
    /// Parses `["100", "text"]`: the largest number of commands per second, and a text that they contain.
    pub(crate) fn commands(args: &[Vec<u8>]) -> Result<View, Failure> {
        const FORM: &str = "ERR the body must be [RATE, TEXT], with a rate of 1 to 1000 commands per second";
        let [rate, text] = args else { return Err(Failure::bad(FORM)) };
        let rate = std::str::from_utf8(rate).ok().and_then(|rate| rate.parse().ok());
        let rate = rate.filter(|rate| (1..=RATE_MAX).contains(rate)).ok_or_else(|| Failure::bad(FORM))?;
        Ok(View::Commands { rate, text: text.to_ascii_lowercase() })
    }

    /// A view of the messages of these channels. A name with a glob character is a pattern.
    pub(crate) fn messages(names: Words) -> View {
        View::Messages { names }
    }

    /// The commands that start the view.
    fn questions(&self) -> Vec<Words> {
        let View::Messages { names } = self else { return vec![vec![b"MONITOR".to_vec()]] };
        let is_pattern = |name: &&Vec<u8>| name.iter().any(|byte| b"*?[\\".contains(byte));
        let (patterns, channels): (Vec<_>, Vec<_>) = names.iter().partition(is_pattern);
        let words = |command: &[u8], names: Vec<&Vec<u8>>| -> Option<Words> {
            let is_empty = names.is_empty();
            (!is_empty).then(|| std::iter::once(command.to_vec()).chain(names.into_iter().cloned()).collect())
        };
        words(b"SUBSCRIBE", channels).into_iter().chain(words(b"PSUBSCRIBE", patterns)).collect()
    }

    fn strings(&self) -> Strings {
        match self {
            View::Commands { .. } => Strings::Text,
            View::Messages { .. } => Strings::Base64,
        }
    }
}

/// The selection of lines, with its counts for the present second.
struct LiveFilter {
    view: View,
    seen: u64,
    matched: u64,
    shown: u64,
    /// One matching line in `stride` is shown.
    stride: u64,
}

impl LiveFilter {
    fn new(view: View) -> LiveFilter {
        LiveFilter { view, seen: 0, matched: 0, shown: 0, stride: 1 }
    }

    /// Counts a line, and returns true if the view shows it.
    fn admits(&mut self, value: &Value) -> bool {
        self.seen += 1;
        let View::Commands { rate, text } = &self.view else {
            self.matched += 1;
            return true;
        };
        let line = value.bytes().unwrap_or_default();
        if !text.is_empty() && !line.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text)) {
            return false;
        }
        self.matched += 1;
        self.shown < *rate && (self.matched - 1).is_multiple_of(self.stride)
    }

    /// Returns the counts of the present second as JSON, and begins the next one.
    fn report(&mut self) -> Bytes {
        let (seen, matched, shown) = (self.seen, self.matched, self.shown);
        if let View::Commands { rate, .. } = self.view {
            self.stride = matched.div_ceil(rate).max(1);
        }
        (self.seen, self.matched, self.shown) = (0, 0, 0);
        format!("{{\"seen\":{seen},\"matched\":{matched},\"shown\":{shown}}}\n").into()
    }
}

/// Counts a live view while it exists.
struct Slot(Rc<Port>);

impl Slot {
    fn take(port: &Rc<Port>) -> Result<Slot, Failure> {
        let views: &Cell<usize> = &port.views;
        if views.get() >= VIEWS_MAX {
            let text = format!("ERR {VIEWS_MAX} live views are open, which is the limit; close one");
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, text));
        }
        views.set(views.get() + 1);
        Ok(Slot(port.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.views.set(self.0.views.get() - 1);
    }
}

/// Opens a view, and returns its lines.
pub(crate) async fn open(
    port: &Rc<Port>,
    admitted: &Admitted,
    database: u32,
    view: View,
    terms: &Terms,
) -> Result<Receiver<Bytes>, Failure> {
    let questions = view.questions();
    if questions.is_empty() {
        return Err(Failure::bad("ERR the body must be an array with the names of channels"));
    }
    let slot = Slot::take(port)?;
    let mut feed = port.lines.feed(admitted, database, &questions, terms).await?;
    let first = feed.next().await?;
    if let Some(error) = first.error() {
        return Err(Failure::new(StatusCode::FORBIDDEN, String::from_utf8_lossy(error)));
    }
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    if matches!(view, View::Messages { .. }) {
        // The queue is empty, so the confirmation fits.
        let _ = sender.try_send(line(first, view.strings()));
    }
    let edition = port.upstream.edition();
    spawn_local(async move { pump(feed, slot, LiveFilter::new(view), edition, sender).await });
    Ok(receiver)
}

/// Passes lines on until the browser or the server closes the connection, the users change, or the console is off.
///
/// The slot is released before the connection closes, so a view that has left CLIENT LIST has made room for another.
async fn pump(mut feed: Feed, slot: Slot, mut filter: LiveFilter, edition: u64, sender: Sender<Bytes>) {
    let mut report = interval(REPORT_INTERVAL);
    report.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            value = feed.next() => match value {
                Ok(value) if filter.admits(&value) => match sender.try_send(line(value, filter.view.strings())) {
                    Ok(()) => filter.shown += 1,
                    Err(TrySendError::Full(_)) => {}
                    Err(TrySendError::Closed(_)) => return,
                },
                Ok(_) => {}
                Err(_) => return,
            },
            _ = report.tick() => {
                let upstream = &slot.0.upstream;
                if upstream.edition() != edition || upstream.terms().console == ConsoleMode::Off {
                    return;
                }
                if matches!(sender.try_send(filter.report()), Err(TrySendError::Closed(_))) {
                    return;
                }
            }
            () = sender.closed() => return,
        }
    }
}

fn line(value: Value, strings: Strings) -> Bytes {
    let mut out = Vec::new();
    json::reply(&shortened(value), strings, &mut out);
    out.push(b'\n');
    out.into()
}

/// Cuts off long texts.
fn shortened(value: Value) -> Value {
    let cut = |mut text: Vec<u8>| {
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(TEXT_BYTES_MAX);
            text.extend_from_slice(b"...");
            text.shrink_to_fit();
        }
        text
    };
    match value {
        Value::Simple(text) => Value::Simple(cut(text)),
        Value::Bulk(text) => Value::Bulk(cut(text)),
        Value::Array(values) => Value::Array(values.into_iter().map(shortened).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Words {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn channels_and_patterns_are_subscribed_separately() {
        let view = View::messages(words(&["news", "user:*", "a[b]"]));
        assert_eq!(view.questions(), [words(&["SUBSCRIBE", "news"]), words(&["PSUBSCRIBE", "user:*", "a[b]"])]);
        assert!(View::messages(Vec::new()).questions().is_empty());
    }

    #[test]
    fn long_texts_are_cut_off() {
        let long = Value::Array(vec![Value::Bulk(vec![b'x'; 1 << 20]), Value::Bulk(b"short".to_vec())]);
        let text = line(long, Strings::Text);
        assert!(text.len() < TEXT_BYTES_MAX + 100 && text.ends_with(b"xx...\",\"short\"]}\n"), "{}", text.len());
        assert!(line(Value::Simple(vec![b'x'; 1 << 20]), Strings::Text).len() < TEXT_BYTES_MAX + 100);
    }

    #[test]
    fn invalid_rates_are_refused() {
        for args in [&["0", ""][..], &["1001", ""], &["x", ""], &["-1", ""], &["1"], &[], &["1", "a", "b"]] {
            assert!(View::commands(&words(args)).is_err(), "{args:?}");
        }
        assert!(View::commands(&words(&["1000", "x"])).is_ok());
    }

    #[test]
    fn commands_are_filtered_and_sampled() {
        let mut filter = LiveFilter::new(View::commands(&words(&["10", "GeT"])).unwrap());
        let pass = |name: &str, count: usize, filter: &mut LiveFilter| {
            let value = Value::Simple(format!("1.5 [0 a:1] \"{name}\" \"k\"").into());
            let admitted = (0..count).filter(|_| {
                let is_admitted = filter.admits(&value);
                filter.shown += u64::from(is_admitted);
                is_admitted
            });
            admitted.count()
        };
        assert_eq!((pass("set", 5, &mut filter), pass("get", 5, &mut filter)), (0, 5));
        assert_eq!(filter.report(), "{\"seen\":10,\"matched\":5,\"shown\":5}\n");
        // The first second shows the first lines; the next ones spread the lines over the second.
        assert_eq!(pass("GET", 100, &mut filter), 10);
        filter.report();
        assert_eq!((pass("get", 9, &mut filter), pass("get", 91, &mut filter)), (1, 9));
        assert_eq!(filter.report(), "{\"seen\":100,\"matched\":100,\"shown\":10}\n");
    }
}
