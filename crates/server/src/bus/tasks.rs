//! The decisions of the bus on their way to the thread that carries them out.
//!
//! The queue is bounded. A newer view of the slots replaces a queued one if only answers are between them. A full queue holds up the bus,
//! which then sends no PINGs: the workers have not let the thread in for a long time, and the other nodes notice this as if the server
//! hung.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::executor::Task;

/// The longest queue. An answer belongs to a waiting client, so clients bound most of it; roles change far less often.
const TASKS_MAX: usize = 10_000;

/// The queue.
#[derive(Default)]
pub struct TaskQueue {
    state: Mutex<QueueState>,
    /// Notified after each change.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    tasks: VecDeque<Task>,
    /// True while a decision is carried out.
    is_busy: bool,
}

impl TaskQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a decision. Waits while the queue is full.
    pub fn push(&self, task: Task) {
        let is_full = |state: &mut QueueState| state.tasks.len() >= TASKS_MAX;
        let mut state = self.changed.wait_while(self.state(), is_full).unwrap_or_else(PoisonError::into_inner);
        append(&mut state.tasks, task);
        self.changed.notify_all();
    }

    /// Takes the oldest decision. Waits while there is none. The decision before it counts as carried out.
    pub fn take(&self) -> Task {
        let mut state = self.state();
        state.is_busy = false;
        self.changed.notify_all();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                state.is_busy = true;
                self.changed.notify_all();
                return task;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until all decisions are carried out, or until the time is over. Returns false then.
    pub fn wait_until_done(&self, max: Duration) -> bool {
        let is_pending = |state: &mut QueueState| state.is_busy || !state.tasks.is_empty();
        let waited = self.changed.wait_timeout_while(self.state(), max, is_pending);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

fn append(tasks: &mut VecDeque<Task>, task: Task) {
    if matches!(task, Task::View(_)) {
        // An answer that follows the older view may follow the newer one as well.
        let before_answers = tasks.iter_mut().rev().find(|task| !matches!(task, Task::Answer(..)));
        if let Some(older @ Task::View(_)) = before_answers {
            *older = task;
            return;
        }
    }
    tasks.push_back(task);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use cluster::commands::ClusterReply;
    use cluster::view::{ClusterState, DownReason, EndpointKind, NodeIndex, ViewParts};
    use cluster::{SlotSet, SlotView};

    use super::super::executor::WaitingClient;
    use super::*;

    fn view(edition: u64) -> Task {
        Task::View(Arc::new(SlotView::new(ViewParts {
            edition,
            state: ClusterState::Down(DownReason::Starting),
            nodes: Vec::new(),
            me: NodeIndex::new(0),
            bound: Vec::new(),
            open: std::collections::BTreeMap::new(),
            endpoint_kind: EndpointKind::default(),
            reads_when_down: false,
            pubsubshard_when_down: true,
        })))
    }

    fn answer() -> Task {
        Task::Answer(WaitingClient { client: 1, worker: 0, wait: 1 }, Box::new(ClusterReply::Ok))
    }

    fn name(task: &Task) -> String {
        match task {
            Task::View(view) => format!("view {}", view.edition),
            Task::DropSlots(_) => "drop".into(),
            Task::Answer(..) => "answer".into(),
            _ => "other".into(),
        }
    }

    #[test]
    fn views_pass_answers_but_no_other_decisions() {
        let queue = TaskQueue::default();
        for task in [view(1), answer(), view(2), Task::DropSlots(Box::new(SlotSet::EMPTY)), view(3), view(4), answer()]
        {
            queue.push(task);
        }
        let taken: Vec<String> = (0..5).map(|_| name(&queue.take())).collect();
        assert_eq!(taken, ["view 2", "answer", "drop", "view 4", "answer"]);
    }

    #[test]
    fn a_decision_is_pending_until_the_next_one_is_taken() {
        let queue = Arc::new(TaskQueue::default());
        assert!(queue.wait_until_done(Duration::ZERO));
        queue.push(answer());
        assert!(!queue.wait_until_done(Duration::ZERO));
        queue.take();
        assert!(!queue.wait_until_done(Duration::from_millis(1)));
        let next = {
            let queue = queue.clone();
            std::thread::spawn(move || name(&queue.take()))
        };
        assert!(queue.wait_until_done(Duration::from_secs(60)));
        queue.push(view(1));
        assert_eq!(next.join().unwrap(), "view 1");
    }

    #[test]
    fn a_full_queue_holds_up_the_bus() {
        let (queue, pushed) = (Arc::new(TaskQueue::default()), Arc::new(AtomicUsize::new(0)));
        let bus = {
            let (queue, pushed) = (queue.clone(), pushed.clone());
            std::thread::spawn(move || {
                for _ in 0..=TASKS_MAX {
                    queue.push(answer());
                    pushed.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        while pushed.load(Ordering::SeqCst) < TASKS_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(pushed.load(Ordering::SeqCst), TASKS_MAX);
        queue.take();
        bus.join().unwrap();
        assert_eq!(pushed.load(Ordering::SeqCst), TASKS_MAX + 1);
    }
}
