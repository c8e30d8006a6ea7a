//! What users are to sessions: which user a session is, what it is denied, and what becomes of connections when users change.

use std::collections::HashSet;
use std::sync::Arc;

use commands::error::Error;
use commands::spec::fact;
use resp::request::Args;

use crate::access::{Asked, Changes, Context, Denial, Denied, Entry, Reason, User};
use crate::clients::client::Client;
use crate::clients::line::{Own, line};
use crate::clients::session::Session;
use crate::command_table::Command;
use crate::config::{LogLevel, UserLines, replace_file, system_text};
use crate::engine::Engine;
use crate::pubsub::ChannelKind;
use crate::services::closing::close_client;
use crate::worker::Worker;

impl Worker {
    /// Has a session be a user, as if it had authenticated as that one: for whatever else than a password tells that it
    /// is. False if there is no such user, or it is off, which is entered into the log as a refused certificate: as in Valkey, without
    /// an object, since no command has been given.
    pub fn log_in(&self, session: &mut Session, name: &[u8]) -> bool {
        let user = self.engine.users.get(name).filter(|user| user.permissions().is_on());
        let found = user.inspect(|user| become_user(session, user.clone())).is_some();
        if !found {
            self.enter_denial(&session.client, "NULL", Reason::Certificate, Context::TopLevel, b"", name);
        }
        found
    }

    /// Whether a session's user may run a command. What it is denied is counted, and entered into the log.
    ///
    /// # Errors
    /// What it is denied.
    pub(crate) fn allow(
        &self,
        session: &Session,
        command: &Command,
        args: Args<'_>,
        context: Context,
    ) -> Result<(), Denial> {
        let Some(permissions) = session.permissions() else { return Ok(()) };
        let denied = permissions.check(self.asked(session.database_ahead(), command, args));
        denied.inspect_err(|denial| {
            if let Some(user) = session.user() {
                self.note_denial(&session.client, user, command, args, *denial, context);
            }
        })
    }

    /// A command as rules look at it.
    pub(crate) fn asked<'a>(&self, database: usize, command: &'a Command, args: Args<'a>) -> Asked<'a> {
        Asked { command, args, database, databases: self.engine.keyspace.databases() }
    }

    /// Runs a command for a session with whatever its user may look up. Only SORT asks for that, and only for a user with
    /// rules.
    pub(crate) fn with_lookups<T>(
        &mut self,
        session: &mut Session,
        command: &Command,
        args: Args<'_>,
        run: impl FnOnce(&mut Worker, &mut Session) -> T,
    ) -> T {
        let Some(permissions) = session.permissions().filter(|_| command.info.is(fact::LOOKS_UP)) else {
            return run(self, session);
        };
        let denies = !permissions.allows_lookups(self.asked(session.database, command, args));
        self.rules.denies_lookups = denies;
        let result = run(self, session);
        self.rules.denies_lookups = false;
        result
    }

    /// Counts a denial, and enters it into the log.
    pub(crate) fn note_denial(
        &self,
        client: &Client,
        user: &User,
        command: &Command,
        args: Args<'_>,
        denial: Denial,
        context: Context,
    ) {
        let object = match denial.what {
            Denied::Command => command.name.as_bytes(),
            Denied::Database if denial.at == 0 => command.name.as_bytes(),
            _ => args.get(denial.at),
        };
        self.enter_denial(client, &command.name, Reason::Rules(denial.what), context, object, user.name());
    }

    /// Counts that a session could not authenticate as a user, and enters it into the log.
    pub(crate) fn note_wrong_password(&self, session: &Session, command: &Command, args: Args<'_>, user: &[u8]) {
        let context = if session.in_exec || session.multi.is_some() { Context::Multi } else { Context::TopLevel };
        self.enter_denial(&session.client, &command.name, Reason::Auth, context, args.get(0), user);
    }

    fn enter_denial(
        &self,
        client: &Client,
        command: &str,
        reason: Reason,
        context: Context,
        object: &[u8],
        user: &[u8],
    ) {
        let engine = self.engine;
        let entries_max = engine.settings.acllog_max_len.get_usize();
        if engine.users.denials.count(reason, entries_max) {
            let own = Own { command, arrived_bytes: self.arrived_bytes() };
            let shown = line(engine.table, client, self.clock.now_ms, Some(own));
            let entry = Entry::new(reason, context, object, user, shown, self.clock.now_ms);
            engine.users.denials.enter(entry, entries_max);
        }
    }
}

/// What a client is told that is denied something.
pub(crate) fn error(session: &Session, command: &Command, denial: Denial) -> Error {
    let user = session.user().map_or("", |user| user.shown());
    Error::quoting(format!("NOPERM {}", denial.text(user, command)).into_bytes())
}

/// Has a session be a user that it has authenticated as.
pub(crate) fn become_user(session: &mut Session, user: Arc<User>) {
    session.set_authenticated(true);
    session.client.set_user(Some(user.shown()));
    session.become_user(user);
}

/// Has a session be the default user, authenticated if that one needs no password.
pub(crate) fn become_default(engine: &Engine, session: &mut Session) {
    session.set_authenticated(engine.users.is_default_open());
    session.client.set_user(None);
    session.become_user(engine.users.default_user().clone());
}

/// Has connections follow changes of users: those of users that are gone are closed, and those that have subscribed to what
/// their user may not any more; all others have their threads take the changes over. Runs behind the closed gate.
pub(crate) fn follow(worker: &Worker, session: &mut Session, changes: &Changes) {
    let engine = worker.engine;
    let is = |client: &Client, user: &User| client.user_name() == user.shown();
    let clients = engine.clients.all();
    for user in &changes.removed {
        clients.iter().filter(|client| is(client, user)).for_each(|client| close(engine, session, client));
    }
    for (user, before) in &changes.changed {
        let own: Vec<_> = clients.iter().filter(|client| is(client, user)).collect();
        let now = user.permissions();
        if !now.keeps_channels_of(before) {
            let ids: HashSet<u64> = own.iter().map(|client| client.id).collect();
            let is_denied = |kind, name: &[u8]| !now.allows_channel(name, kind == ChannelKind::Pattern);
            let lost = engine.pubsub.subscribed(&ids, is_denied);
            own.iter().filter(|client| lost.contains(&client.id)).for_each(|client| close(engine, session, client));
        }
        own.iter().for_each(|client| client.summons.change_user());
    }
    // Its own commands that follow are planned by this, be they in the same batch.
    session.follow_summons();
}

fn close(engine: &Engine, session: &mut Session, client: &Arc<Client>) {
    if client.id == session.client.id {
        // It is still to read the reply.
        session.closing = true;
    } else {
        close_client(engine, client);
    }
}

/// Makes the users that the configuration asks for: those of its lines, or those of the file that it names.
///
/// # Errors
/// Why the server must not start.
pub fn begin(engine: &Engine) -> Result<(), String> {
    let settings = &engine.settings;
    let (lines, file) = (settings.configured_users(), settings.aclfile.get());
    let all_channels = settings.new_users_have_all_channels();
    if !file.is_empty() && !lines.is_empty() {
        return Err(
            "Users are declared in the configuration, and aclfile names a file of users. That is likely to lead to \
                    errors and security holes: declare users in one place, not in both."
                .to_string(),
        );
    }
    for off in engine.users.configure(&lines, all_channels)? {
        let warning = format!(
            "The user '{off}' is disabled (there is no 'on' modifier in the user description). Make sure this is not a \
             configuration error."
        );
        engine.host.log(LogLevel::Notice, &warning);
    }
    if !file.is_empty() {
        let loaded = load_file(engine).map_err(|error| String::from_utf8_lossy(&error).into_owned());
        loaded.map_err(|error| format!("Aborting startup because of ACL errors: {error}"))?;
    } else {
        tell_of_foreign(engine, None);
    }
    Ok(())
}

/// Logs which commands of other servers the rules of a user name, or those of all.
pub(crate) fn tell_of_foreign(engine: &Engine, user: Option<&[u8]>) {
    let names = engine.users.foreign(user);
    if !names.is_empty() {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let notice =
            format!("Rules of users name commands that this server doesn't have, and are kept as they are: {names}.");
        engine.host.log(LogLevel::Notice, &notice);
    }
}

/// Loads the file of users.
///
/// # Errors
/// What is wrong with it, as ACL LOAD says it.
pub(crate) fn load_file(engine: &Engine) -> Result<Changes, Vec<u8>> {
    let (settings, name) = (&engine.settings, engine.settings.aclfile.get());
    let text = std::fs::read(settings.in_dir(&name))
        .map_err(|error| format!("Error loading ACLs, opening file '{name}': {}", system_text(&error)).into_bytes())?;
    let changes = engine.users.load(&name, &text, settings.new_users_have_all_channels())?;
    tell_of_foreign(engine, None);
    Ok(changes)
}

/// Writes the file of users, whole or not at all.
///
/// # Errors
/// Why it can't be written.
pub(crate) fn save_file(engine: &Engine) -> std::io::Result<()> {
    let path = engine.settings.in_dir(&engine.settings.aclfile.get());
    replace_file(&path, &engine.users.file_text())
}

/// The lines of users that CONFIG REWRITE writes.
pub(crate) fn lines_for_config(engine: &Engine) -> UserLines {
    if !engine.settings.aclfile.is_empty() {
        return UserLines::default();
    }
    let lines = engine.users.config_lines();
    UserLines { lines, are_needed: engine.users.differ_from_none(&engine.settings.requirepass.get()) }
}
