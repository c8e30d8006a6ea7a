//! Moves of whole slots of a process: the steps of the server's threads for them, without waiting.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use cluster::view::NodeView;
use engine::slot_moves::{
    CleanUp, Export, FollowedEnds, Import, LOST_SOURCE, MoveClock, MoveWait, SourceLink, TargetLink,
};
use engine::slots::jobs::SlotJob;
use engine::state::Engine;
use replication::backlog::Overflow;

use crate::network::{Network, Side, WireId};
use crate::setup::PORTS;

/// Most steps of a machine in a turn.
const STEPS_MAX: usize = 8;

/// A file in memory for bytes that have not been sent.
struct MemoryOverflow(Vec<u8>);

impl Overflow for MemoryOverflow {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// The environment of a step.
pub struct MovesTurn<'t> {
    /// The process's number.
    pub process: usize,
    /// Its engine.
    pub engine: &'static Engine,
    /// The links.
    pub network: &'t mut Network,
    /// The time of the simulation.
    pub now_us: u64,
    /// The process's clock, in microseconds of Unix time.
    pub unix_us: u64,
}

/// A connection in a step.
struct MoveLink<'l, 't> {
    wire: &'l mut Option<WireId>,
    side: Side,
    turn: &'l mut MovesTurn<'t>,
}

impl MoveClock for MovesTurn<'_> {
    fn now(&self) -> Duration {
        Duration::from_micros(self.now_us)
    }

    fn unix_us(&self) -> u64 {
        self.unix_us
    }
}

impl MoveClock for MoveLink<'_, '_> {
    fn now(&self) -> Duration {
        self.turn.now()
    }

    fn unix_us(&self) -> u64 {
        self.turn.unix_us
    }
}

impl MoveLink<'_, '_> {
    fn wire(&self) -> io::Result<WireId> {
        self.wire.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        let (bytes, has_ended) = self.turn.network.receive(self.wire()?, self.side, self.turn.now_us);
        into.extend_from_slice(&bytes);
        match bytes.is_empty() && has_ended {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(!bytes.is_empty()),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wire = self.wire()?;
        let len = bytes.len().min(self.turn.network.room(wire, self.side));
        self.turn.network.send(wire, self.side, &bytes[..len], self.turn.now_us);
        Ok(len)
    }

    fn end(&mut self) {
        if let Some(wire) = self.wire.take() {
            self.turn.network.close(wire, self.side);
        }
    }
}

impl TargetLink for MoveLink<'_, '_> {
    fn open(&mut self, node: &NodeView) -> Result<(), String> {
        let target = usize::from(node.endpoints.ports.of(false).saturating_sub(PORTS));
        *self.wire = self.turn.network.open([Some(self.turn.process), Some(target)]);
        if self.wire.is_some() { Ok(()) } else { Err("no way to the target".into()) }
    }

    fn connect(&mut self) -> io::Result<bool> {
        self.wire().map(|_| true)
    }

    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        self.receive(into)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn bytes_on_way(&self) -> u64 {
        0
    }

    fn close(&mut self) {
        self.end();
    }

    fn make_overflow(&self, _: &str) -> io::Result<Box<dyn Overflow>> {
        Ok(Box::new(MemoryOverflow(Vec::new())))
    }
}

impl SourceLink for MoveLink<'_, '_> {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        self.receive(into)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }

    fn close(&mut self) {
        self.end();
    }
}

/// An import and its connection.
struct SimImport {
    import: Import,
    wire: Option<WireId>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct SimMoves {
    exports: bool,
    export: Option<(Export, Option<WireId>)>,
    /// Connections of sources that have asked for an import.
    arrived: Vec<(Option<WireId>, Arc<SlotJob>)>,
    imports: Vec<SimImport>,
    clean_ups: Vec<CleanUp>,
    ends: VecDeque<FollowedEnds>,
}

impl SimMoves {
    /// Begins to carry out exports, until there are none.
    pub fn begin_exports(&mut self) {
        self.exports = true;
    }

    /// Begins an import. Without a connection, it fails.
    pub fn begin_import(&mut self, wire: Option<WireId>, job: Arc<SlotJob>) {
        self.arrived.push((wire, job));
    }

    /// Begins to end the imports that this process only followed.
    pub fn end_followed(&mut self, engine: &'static Engine, message: &str) {
        self.ends.extend(FollowedEnds::begin(engine, message));
    }

    /// Returns true if no import that this process only followed is being ended.
    #[must_use]
    pub fn have_ended_followed(&self) -> bool {
        self.ends.is_empty()
    }

    /// Runs some steps of each machine.
    pub fn step(&mut self, turn: &mut MovesTurn<'_>) {
        self.begin_arrived(turn);
        self.step_export(turn);
        self.imports.retain_mut(|of| {
            let SimImport { import, wire } = of;
            let mut link = MoveLink { wire, side: 1, turn };
            run(|| import.step(&mut link)) != MoveWait::Over
        });
        self.clean_ups.retain_mut(|clean_up| run(|| clean_up.step(turn)) != MoveWait::Over);
        if let Some(ends) = self.ends.front_mut()
            && run(|| ends.step(turn)) == MoveWait::Over
        {
            self.ends.pop_front();
        }
    }

    fn begin_arrived(&mut self, turn: &mut MovesTurn<'_>) {
        for (mut wire, job) in std::mem::take(&mut self.arrived) {
            if wire.is_none() {
                job.ask_for_failure(LOST_SOURCE);
                self.clean_ups.push(CleanUp::begin(turn.engine, job, LOST_SOURCE, turn));
                continue;
            }
            let import = Import::begin(turn.engine, job, &MoveLink { wire: &mut wire, side: 1, turn });
            self.imports.push(SimImport { import, wire });
        }
    }

    fn step_export(&mut self, turn: &mut MovesTurn<'_>) {
        if self.export.is_none() && self.exports {
            match turn.engine.slots.jobs.next_export() {
                None => self.exports = false,
                Some(job) => {
                    let link = MoveLink { wire: &mut None, side: 0, turn };
                    let export = Export::begin(link.turn.engine, job, &link);
                    self.export = Some((export, None));
                }
            }
        }
        if let Some((export, wire)) = &mut self.export {
            let mut link = MoveLink { wire, side: 0, turn };
            if run(|| export.step(&mut link)) == MoveWait::Over {
                self.export = None;
            }
        }
    }
}

/// Runs steps while no condition is awaited. Returns the last condition.
fn run(mut step: impl FnMut() -> MoveWait) -> MoveWait {
    let mut wait = MoveWait::Nothing;
    for _ in 0..STEPS_MAX {
        wait = step();
        if wait != MoveWait::Nothing {
            break;
        }
    }
    wait
}
