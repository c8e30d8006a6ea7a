//! DEBUG RELOAD and LOADAOF: write and load all data, so that tests can detect losses.

use std::fs::File;

use commands::error::{Error, Outcome};
use store::db::Db;

use crate::families::scripts::{functions, scripting};
use crate::services::saving;
use crate::services::users::lines_for_config;
use crate::snapshots::Purpose;
use crate::snapshots::reading::{self, Arriving, ExpiredKeys, LoadOptions, ReadContext, SnapshotTarget};
use crate::worker::turn::Turn;
use config::{LogLevel, rewrite};

/// The steps of a reload.
struct Plan {
    saves: bool,
    flushes: bool,
    merges: bool,
}

pub(super) fn reload(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    if engine.is_loading() {
        return Err(Error::new("LOADING Redis is loading the dataset in memory"));
    }
    let plan = plan(turn)?;
    if plan.saves {
        saving::save_now(engine, turn.locked, &turn.worker.clock)?;
    }
    if plan.flushes {
        flush(turn);
    }
    if let Err(why) = load(turn, plan.merges) {
        engine.host.log(LogLevel::Warning, &format!("DEBUG RELOAD: can't load the snapshot: {why}"));
        return Err(Error::new("ERR Error trying to load the RDB dump, check server logs"));
    }
    // The append-only file has the previous data.
    if engine.settings.appendonly.get() {
        engine.snapshots.want(Purpose::Base);
    }
    engine.host.log(LogLevel::Warning, "DB reloaded by DEBUG RELOAD");
    turn.reply.ok();
    Ok(())
}

/// `RESTART` and `CRASH-AND-RECOVER`, with an optional delay in milliseconds: restart the process. A graceful restart
/// first saves the configuration and the data, as far as there are a configuration file and save points.
pub(super) fn restart(turn: &mut Turn<'_, '_>, gracefully: bool) -> Outcome {
    let engine = turn.engine();
    let after_ms = if turn.len() > 2 { u64::try_from(turn.int(2)?).unwrap_or_default() } else { 0 };
    if gracefully {
        if let Some(file) = engine.config_file.as_deref() {
            let written = rewrite(&engine.settings, lines_for_config(engine), Some(file));
            written.map_err(|error| Error::new(error.to_string()))?;
        }
        let saves = !engine.settings.save.is_empty();
        saving::save_last(engine, turn.locked, &turn.worker.clock, saves)?;
    }
    engine.host.log(LogLevel::Warning, "DEBUG: the server starts anew");
    engine.host.restart(gracefully, after_ms).map_err(|why| Error::new(format!("ERR {why}")))?;
    turn.session.closing = true;
    Ok(())
}

/// The server reloads after this command has released its locks; until then no other command runs, so clients can't see
/// the difference.
pub(super) fn load_append_only_file(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    if engine.is_loading() {
        return Err(Error::new("LOADING Redis is loading the dataset in memory"));
    }
    engine.begin_reloading(turn.now_ms());
    if let Err(why) = engine.host.reload_append_only_file() {
        engine.end_reloading();
        return Err(Error::new(format!("ERR {why}")));
    }
    turn.reply.ok();
    Ok(())
}

fn plan(turn: &Turn<'_, '_>) -> Result<Plan, Error> {
    let mut plan = Plan { saves: true, flushes: true, merges: false };
    for at in 2..turn.len() {
        match &*turn.arg(at).to_ascii_uppercase() {
            b"MERGE" => plan.merges = true,
            b"NOFLUSH" => plan.flushes = false,
            b"NOSAVE" => plan.saves = false,
            _ => return Err(Error::new("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")),
        }
    }
    Ok(plan)
}

fn flush(turn: &mut Turn<'_, '_>) {
    let clock = *turn.worker.clock;
    for database in 0..turn.engine().keyspace.databases() {
        Db::new(turn.locked, database, &clock, &mut turn.worker.observed).flush(false);
        turn.worker.effects.emptied(database);
    }
}

fn load(turn: &mut Turn<'_, '_>, merges: bool) -> Result<(), String> {
    let engine = turn.engine();
    let path = engine.settings.in_dir(&engine.settings.dbfilename.get());
    let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let checks = engine.settings.rdbchecksum.get();
    let options = LoadOptions { expired: ExpiredKeys::LeftOut, checks, replaces: merges, bytes: None };
    let (limits, clock) = (turn.worker.rules.limits(), *turn.worker.clock);
    let databases = engine.keyspace.databases();
    let context = ReadContext { limits, clock: &clock, databases, options, settings: &engine.settings };
    reading::read(file, context, |_| {}, &mut Reload(turn))?;
    Ok(())
}

/// Loads a snapshot into the keyspace, while the command runs alone.
struct Reload<'a, 't, 'k>(&'a mut Turn<'t, 'k>);

impl SnapshotTarget for Reload<'_, '_, '_> {
    fn put_in(&mut self, arriving: &mut Arriving) -> Result<(), String> {
        let (clock, turn) = (*self.0.worker.clock, &mut self.0);
        arriving.put_into(&mut Db::new(turn.locked, arriving.database, &clock, &mut turn.worker.observed))
    }

    fn expect(&mut self, database: usize, keys: usize) {
        let (clock, turn) = (*self.0.worker.clock, &mut self.0);
        Db::new(turn.locked, database, &clock, &mut turn.worker.observed).expect(keys);
    }

    fn function(&mut self, text: &[u8]) -> Result<(), String> {
        functions::put_in(self.0, text).map_err(|error| String::from_utf8_lossy(error.text()).into_owned())
    }

    fn script(&mut self, text: &[u8]) -> Result<(), String> {
        scripting::put_in(self.0, text).map_err(|error| String::from_utf8_lossy(error.text()).into_owned())
    }

    fn token(&mut self, record: &[u8]) -> Result<(), String> {
        let applied = self.0.engine().pipelines.replay_record(record, self.0.now_ms());
        if applied { Ok(()) } else { Err("a field that is no record of a pipeline token".into()) }
    }
}
