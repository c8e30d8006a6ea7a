//! Access control for sessions: a session's user, its denials, and the effects of changed users on connections.

use std::collections::HashSet;
use std::sync::Arc;

use commands::error::Error;
use commands::spec::fact;
use resp::request::Args;

use crate::clients::client::Client;
use crate::clients::line::{Own, line};
use crate::clients::session::Session;
use crate::pubsub::ChannelKind;
use crate::services::closing::close_client;
use crate::state::Engine;
use crate::worker::Worker;
use access::{Asked, Changes, Context, Denial, Denied, Entry, Reason, User, Users};
use commands::table::Command;
use config::{LogLevel, UserLines, replace_file, system_text};

impl Worker {
    /// Makes a session a user's without a password, for example by a certificate. Returns false if the user doesn't
    /// exist or is off; the log then gets an entry for a refused certificate, without an object as in Valkey, because
    /// there is no command.
    pub fn log_in(&self, session: &mut Session, name: &[u8]) -> bool {
        let user = self.engine.users.get(name).filter(|user| user.permissions().is_on());
        let found = user.inspect(|user| become_user(session, user.clone())).is_some();
        if !found {
            self.enter_denial(&session.client, "NULL", Reason::Certificate, Context::TopLevel, b"", name);
        }
        found
    }

    /// Checks if a session's user may run a command. A denial is counted and logged.
    ///
    /// # Errors
    /// The denial.
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

    /// Describes a command for the check of rules.
    pub(crate) fn asked<'a>(&self, database: usize, command: &'a Command, args: Args<'a>) -> Asked<'a> {
        Asked { command, args, database, databases: self.engine.keyspace.databases() }
    }

    /// Runs a command for a session with the lookups that its user may do. Only SORT asks for it, and only for
    /// restricted users.
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

    /// Counts and logs a denial.
    pub(crate) fn note_denial(
        &self,
        client: &Client,
        user: &User,
        command: &Command,
        args: Args<'_>,
        denial: Denial,
        context: Context,
    ) {
        let object = match denial.object {
            Denied::Command => command.name.as_bytes(),
            Denied::Database if denial.at == 0 => command.name.as_bytes(),
            _ => args.get(denial.at),
        };
        self.enter_denial(client, &command.name, Reason::Rules(denial.object), context, object, user.name());
    }

    /// Counts and logs a failed authentication as a user.
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

/// Returns the error for a denial.
pub(crate) fn error(session: &Session, command: &Command, denial: Denial) -> Error {
    let user = session.user().map_or("", |user| user.shown());
    Error::quoting(format!("NOPERM {}", denial.text(user, command)).into_bytes())
}

/// Makes a session an authenticated user's.
pub(crate) fn become_user(session: &mut Session, user: Arc<User>) {
    session.set_authenticated(true);
    session.client.set_user(Some(user.shown()));
    session.become_user(user);
}

/// Makes a session the default user's, authenticated if that user needs no password.
pub(crate) fn become_default(engine: &Engine, session: &mut Session) {
    session.set_authenticated(engine.users.is_default_open());
    session.client.set_user(None);
    session.become_user(engine.users.default_user().clone());
}

/// Applies changes of users to connections. Connections of removed users are closed, and so are those with
/// subscriptions that their user no longer allows; the workers of all others take over the changes. Runs behind the
/// closed gate.
pub(crate) fn follow(worker: &Worker, session: &mut Session, changes: &Changes) {
    let engine = worker.engine;
    let is = |client: &Client, user: &User| client.is_user(user.shown());
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
        own.iter().for_each(|client| client.pending_signals.change_user());
    }
    // The session's own next commands are planned under the change, even in the same batch.
    session.handle_signals();
}

fn close(engine: &Engine, session: &mut Session, client: &Arc<Client>) {
    if client.id == session.client.id {
        // The client must still receive the reply.
        session.closing = true;
    } else {
        close_client(engine, client);
    }
}

/// Creates the users of the configuration: from its lines, or from the file that it names.
///
/// # Errors
/// The reason why the server must not start.
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

/// Logs the commands of other servers in the rules of a user or, with `None`, of all users.
pub(crate) fn tell_of_foreign(engine: &Engine, user: Option<&[u8]>) {
    let names = engine.users.unknown_commands(user);
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
/// The errors in the file, in the words of ACL LOAD.
pub(crate) fn load_file(engine: &Engine) -> Result<Changes, Vec<u8>> {
    let (settings, name) = (&engine.settings, engine.settings.aclfile.get());
    let text = std::fs::read(settings.in_dir(&name))
        .map_err(|error| format!("Error loading ACLs, opening file '{name}': {}", system_text(&error)).into_bytes())?;
    let changes = engine.users.load(&name, &text, settings.new_users_have_all_channels())?;
    tell_of_foreign(engine, None);
    Ok(changes)
}

/// Writes the file of users atomically.
///
/// # Errors
/// The error of the write.
pub(crate) fn save_file(engine: &Engine) -> std::io::Result<()> {
    let path = engine.settings.in_dir(&engine.settings.aclfile.get());
    replace_file(&path, &engine.users.file_text())
}

/// Returns the users' lines for CONFIG REWRITE, without those of included files.
pub(crate) fn lines_for_config(engine: &Engine) -> UserLines {
    let settings = &engine.settings;
    if !settings.aclfile.is_empty() {
        return UserLines::default();
    }
    let mut lines = engine.users.config_lines();
    let included = settings.included_users();
    let declared = lines_as_declared(engine, &included);
    let mut changed = None;
    for ((name, file), line) in included.into_iter().zip(declared) {
        let before = lines.len();
        lines.retain(|now| Some(now) != line.as_ref());
        if lines.len() == before {
            changed.get_or_insert((name, file));
        }
    }
    UserLines { lines, are_needed: engine.users.differ_from_none(&settings.requirepass.get()), changed }
}

/// Returns the lines of some users as the configuration declared them, in the form of [`User::config_line`].
fn lines_as_declared(engine: &Engine, included: &[(String, String)]) -> Vec<Option<String>> {
    let settings = &engine.settings;
    let one = |name: &String| {
        let users = Users::new(engine.table);
        let declared = settings.configured_users().into_iter().filter(|user| user.first() == Some(name));
        // These lines were valid at the start, so errors are unexpected.
        users.configure(&declared.collect::<Vec<_>>(), settings.new_users_have_all_channels()).ok()?;
        if !settings.requirepass.is_empty() {
            users.require_password(&settings.requirepass.get());
        }
        users.get(name.as_bytes()).map(|user| user.config_line())
    };
    included.iter().map(|(name, _)| one(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::{begin, lines_for_config};
    use crate::testing::Bench;
    use config::{Loader, Settings};

    #[test]
    fn users_in_included_files_are_not_written_again() {
        let settings = Settings::new();
        let mut loader = Loader::new(&settings);
        let line = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        loader.directive(&line("user here on nopass ~here")).unwrap();
        loader.set_included(Some("users.conf".into()));
        loader.directive(&line("user a on >secret ~a* +get")).unwrap();
        loader.directive(&line("user default on nopass ~* &* +@all")).unwrap();
        loader.set_included(None);
        let mut bench = Bench::with(settings);
        let engine = bench.worker.engine;
        begin(engine).unwrap();
        let names = || -> Vec<String> {
            lines_for_config(engine).lines.iter().filter_map(|line| line.split(' ').nth(1).map(str::to_owned)).collect()
        };
        assert_eq!((names(), lines_for_config(engine).changed), (vec!["here".to_owned()], None));
        let mut session = bench.open();
        bench.check(&mut session, &[("ACL SETUSER new on", "+OK"), ("ACL SETUSER a +set", "+OK")]);
        let changed = Some(("a".to_owned(), "users.conf".to_owned()));
        assert_eq!(lines_for_config(engine).changed, changed);
        bench.check(&mut session, &[("ACL SETUSER a -set", "+OK"), ("ACL DELUSER a", ":1")]);
        assert_eq!(lines_for_config(engine).changed, changed);
    }
}
