//! Polling: the same question at a steady pace, usually without a new answer.

/// Number of questions that are followed at the same time.
const QUESTIONS: usize = 4;
/// Number of times that a question must be asked to count.
const ASKED_MIN: u32 = 8;
/// The pace of a loop that sleeps varies by up to this share of the time between two questions. Requests of users come less evenly.
const EVEN_SHARE: u64 = 8;

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
    even: u32,
    empty: u32,
    /// Number of answers without news after which the client went on with another command at once.
    followed: u32,
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
    /// The hash of the command.
    pub command: u64,
    /// True if the question takes an element or a lock, and thus waits for it.
    pub takes: bool,
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
    /// The command of the last question if its answer had no news, otherwise 0. The question's index.
    last_command: u64,
    last_question: u8,
}

impl Polls {
    /// Takes the next command of the client. A client that polls has nothing to do after an answer without news, but a request of a user
    /// reads its other values.
    #[inline]
    pub fn go_on(&mut self, command: u64, is_after_pause: bool) {
        if self.last_command != 0 {
            let is_other = std::mem::take(&mut self.last_command) != command;
            let question = &mut self.questions[usize::from(self.last_question) % QUESTIONS];
            question.followed += u32::from(is_other && !is_after_pause);
        }
    }

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
        let known = self.questions.iter().position(|question| question.question == answered.question);
        let Some(question) = known.and_then(|index| self.questions.get_mut(index)) else {
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
        let varies_by_ns = interval_ns.abs_diff(question.interval_ns);
        // A repeated value is not a new answer.
        let is_new = !answered.is_empty && (answered.reply == 0 || answered.reply != question.reply);
        question.steady += u32::from(varies_by_ns <= question.interval_ns / 2);
        question.even += u32::from(varies_by_ns <= question.interval_ns / EVEN_SHARE);
        question.interval_ns = match question.interval_ns {
            0 => interval_ns,
            usual => (usual * 7 + interval_ns) / 8,
        };
        question.last_ns = answered.asked_ns;
        question.reply = answered.reply;
        question.asked += 1;
        question.empty += u32::from(!is_new);
        if !is_new || answered.reply == 0 {
            self.last_command = answered.command;
            self.last_question = known.unwrap_or_default() as u8;
        }
        if question.asked < ASKED_MIN {
            return None;
        }
        let Question { asked, steady, even, empty, followed, at_once, .. } = *question;
        (question.asked, question.steady, question.even) = (0, 0, 0);
        (question.empty, question.followed, question.at_once) = (0, 0, 0);
        let is_of_request = !answered.takes && followed * 2 > empty.max(1) && even * 10 < asked * 7;
        let is_steady = steady * 10 >= asked * 7 && !is_of_request;
        let is_polled = at_once * 4 <= asked && is_steady && (empty * 10 >= asked * 7 || answered.reply == 0);
        let found = if answered.reply == 0 { 0 } else { asked - empty };
        is_polled.then(|| Polled { made: asked.into(), found: found.into(), interval_ns: question.interval_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(key: u64, asked_ns: u64, reply: u64, is_empty: bool) -> Answered {
        Answered { question: 5, command: 3, takes: false, key, asked_ns, reply, is_empty }
    }

    /// The trips of the polling that is reported for some questions, each with the time since the previous one and
    /// whether its answer was new.
    fn polled(questions: impl IntoIterator<Item = (u64, bool)>) -> u64 {
        let (mut polls, mut now) = (Polls::default(), 0);
        let mut reply = 100;
        let told = questions.into_iter().filter_map(|(wait, found)| {
            now += wait;
            reply += u64::from(found);
            let reply = if found { reply } else { 1 };
            polls.ask(&answered(5, now, reply, !found))
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
                let answered = answered(5, turn * 1_000_000, 1, true);
                told += polls.ask(&answered).map_or(0, |polled| polled.made);
            } else {
                polls.ask_at_once(5);
            }
        }
        assert_eq!(told, 0);
    }

    /// A request of a user comes at any time, and reads a board that rarely changes. A loop that sleeps may ask about two things.
    #[test]
    fn questions_of_requests_are_no_polling() {
        let polled = |varies_by: u64, follows: u64| {
            let (mut polls, mut now, mut told, mut random) = (Polls::default(), 0, 0, 1_u64);
            for _ in 0..400 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                now += 10_000_000 + (random >> 33) % varies_by;
                polls.go_on(3, true);
                told += polls.ask(&answered(5, now, 1, false)).map_or(0, |polled| polled.made);
                polls.go_on(follows, false);
            }
            told
        };
        assert!(polled(10_000_000, 4) < 16);
        assert_eq!((polled(1_000_000, 4), polled(10_000_000, 3)), (392, 392));
    }

    #[test]
    fn a_client_does_not_poll_keys_that_it_writes_itself() {
        let asked = |own_key| {
            let (mut polls, mut told) = (Polls::default(), 0);
            for turn in 0..400_u64 {
                let answered = answered(7, turn * 1_000_000, 1, false);
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
