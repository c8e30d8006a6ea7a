//! Polling: the same question at a steady pace, usually without a new answer.

/// Number of questions that are followed at the same time.
const QUESTIONS: usize = 4;
/// Number of times that a question must be asked to count.
const ASKED_MIN: u32 = 8;

/// A question, identified by command and key. The other arguments may change, for example in a queue ordered by time.
#[derive(Clone, Copy, Debug, Default)]
struct Question {
    /// The hash of command and key; 0 for a free entry.
    question: u64,
    /// The key's hash.
    key: u64,
    last_ns: u64,
    /// The usual time between two questions.
    interval_ns: u64,
    reply: u64,
    asked: u32,
    steady: u32,
    empty: u32,
    /// Number of questions without a preceding wait, and of the client's own writes to the key.
    at_once: u32,
}

/// A polled question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Number of questions.
    pub made: u64,
    /// Number of new answers.
    pub found: u64,
    /// The time between two questions.
    pub interval_ns: u64,
}

/// A question with its answer.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The hash of command and key.
    pub question: u64,
    /// The key's hash.
    pub key: u64,
    /// Time of the question.
    pub asked_ns: u64,
    /// The hash of the reply; 0 if unknown.
    pub reply: u64,
    /// True if the reply was empty.
    pub is_empty: bool,
}

/// The questions of a connection.
#[derive(Clone, Debug, Default)]
pub struct Polls {
    questions: [Question; QUESTIONS],
    next: u8,
}

impl Polls {
    /// Counts a question that the client asked without waiting first: as part of other work, not as polling.
    #[inline]
    pub fn ask_at_once(&mut self, question: u64) {
        if let Some(known) = self.questions.iter_mut().find(|known| known.question == question) {
            known.at_once += 1;
        }
    }

    /// Counts the client's own write to a key: such a client does not wait until another one changes the key.
    #[inline]
    pub fn written(&mut self, key: u64) {
        for known in self.questions.iter_mut().filter(|known| known.key == key) {
            known.at_once += 1;
        }
    }

    /// Adds a question. Returns the counts if the client is polling.
    pub fn ask(&mut self, answered: &Answered) -> Option<Polled> {
        let known = self.questions.iter_mut().find(|question| question.question == answered.question);
        let Some(question) = known else {
            let place = &mut self.questions[usize::from(self.next) % QUESTIONS];
            self.next = self.next.wrapping_add(1);
            *place = Question {
                question: answered.question,
                key: answered.key,
                last_ns: answered.asked_ns,
                reply: answered.reply,
                ..Question::default()
            };
            return None;
        };
        let interval_ns = answered.asked_ns.saturating_sub(question.last_ns);
        let is_steady = interval_ns.abs_diff(question.interval_ns) <= question.interval_ns / 2;
        // A repeated value is not a new answer.
        let is_new = !answered.is_empty && (answered.reply == 0 || answered.reply != question.reply);
        question.interval_ns = match question.interval_ns {
            0 => interval_ns,
            usual => (usual * 7 + interval_ns) / 8,
        };
        question.last_ns = answered.asked_ns;
        question.reply = answered.reply;
        question.asked += 1;
        question.steady += u32::from(is_steady);
        question.empty += u32::from(!is_new);
        if question.asked < ASKED_MIN {
            return None;
        }
        let (asked, steady, empty, at_once) = (question.asked, question.steady, question.empty, question.at_once);
        (question.asked, question.steady, question.empty, question.at_once) = (0, 0, 0, 0);
        let is_polled =
            at_once * 4 <= asked && steady * 10 >= asked * 7 && (empty * 10 >= asked * 7 || answered.reply == 0);
        let found = if answered.reply == 0 { 0 } else { asked - empty };
        is_polled.then(|| Polled { made: asked.into(), found: found.into(), interval_ns: question.interval_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trips of the polling that is reported for some questions, each with the time since the previous one and
    /// whether its answer was new.
    fn polled(questions: impl IntoIterator<Item = (u64, bool)>) -> u64 {
        let (mut polls, mut now) = (Polls::default(), 0);
        let mut reply = 100;
        let told = questions.into_iter().filter_map(|(wait, found)| {
            now += wait;
            reply += u64::from(found);
            let reply = if found { reply } else { 1 };
            polls.ask(&Answered { question: 5, key: 5, asked_ns: now, reply, is_empty: !found })
        });
        told.map(|polled| polled.made).sum()
    }

    #[test]
    fn a_steady_pace_with_no_result_is_polling() {
        assert_eq!(polled((0..100).map(|_| (1_000_000, false))), 96);
        assert_eq!(polled((0..100).map(|turn| (1_000_000 + turn % 7 * 50_000, turn % 10 == 0))), 96);
    }

    #[test]
    fn questions_within_other_work_are_no_polling() {
        let (mut polls, mut told) = (Polls::default(), 0);
        for turn in 0..400_u64 {
            if turn % 3 == 0 {
                let answered = Answered { question: 5, key: 5, asked_ns: turn * 1_000_000, reply: 1, is_empty: true };
                told += polls.ask(&answered).map_or(0, |polled| polled.made);
            } else {
                polls.ask_at_once(5);
            }
        }
        assert_eq!(told, 0);
    }

    #[test]
    fn a_client_does_not_poll_keys_that_it_writes_itself() {
        let asked = |own_key| {
            let (mut polls, mut told) = (Polls::default(), 0);
            for turn in 0..400_u64 {
                let answered = Answered { question: 5, key: 7, asked_ns: turn * 1_000_000, reply: 1, is_empty: false };
                told += polls.ask(&answered).map_or(0, |polled| polled.made);
                polls.written(own_key);
            }
            told
        };
        assert_eq!((asked(7), asked(8)), (0, 392));
    }

    #[test]
    fn questions_that_find_something_are_no_polling() {
        assert_eq!(polled((0..100).map(|_| (1_000_000, true))), 0);
    }

    #[test]
    fn questions_without_a_pace_are_no_polling() {
        let mut random = 1_u64;
        let mut wait = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1 << (10 + (random >> 60))
        };
        let questions: Vec<_> = (0..1000).map(|_| (wait(), false)).collect();
        assert!(polled(questions) < 100);
    }
}
