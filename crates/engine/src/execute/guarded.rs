//! What is looked at ahead for a session that may not do everything: the commands of a window are held against its user's
//! rules when they are planned, so that those which may run take the same ways as any others.

use resp::request::{Input, Limits, Stop};

use super::windows::{Stint, plan};
use crate::clients::session::Session;
use crate::replies::UNAUTHENTICATED_BYTES_MAX;
use crate::worker::Worker;
use crate::worker::tables::Tables;

impl Worker {
    /// Frames and plans the next window of a session that has yet to authenticate, or whose user isn't allowed everything.
    #[inline(never)]
    pub(super) fn frame_guarded(
        &self,
        session: &mut Session,
        stint: &mut Stint<'_>,
        tables: &mut Tables,
        window: usize,
    ) -> (usize, Stop) {
        session.begin_plan();
        // Authentication changes the limits of what follows, so what comes before it is framed one by one.
        let unauthenticated = self.engine.must_authenticate(session);
        let (window, bytes) =
            if unauthenticated { (1, UNAUTHENTICATED_BYTES_MAX) } else { (window, self.reply_bytes_max()) };
        stint.replies_end = stint.written + bytes;
        let limits = Limits { unauthenticated, ..self.limits };
        let framed = session.framer.frame(stint.input, stint.at, &limits, window, &mut tables.batch);
        plan(&tables.batch, stint.input, &mut tables.planned, &mut tables.keys);
        self.hold_against_rules(session, stint.input, tables);
        framed
    }

    /// Has the commands that may not run, and those that must be looked at when they do, be admitted with care.
    fn hold_against_rules(&self, session: &Session, input: Input<'_>, tables: &mut Tables) {
        let Some(permissions) = session.permissions() else { return };
        let Tables { batch, planned, keys } = tables;
        for (request, plan) in batch.requests().iter().zip(planned.iter_mut()) {
            let Some(command) = plan.command else { continue };
            let args = batch.args(request, input);
            let key = match &keys[plan.keys_start as usize..plan.keys_end as usize] {
                [key] => args.get(key.arg as usize),
                _ => b"",
            };
            if !permissions.surely_allows(command.id, key, session.database) && plan.fits {
                let is_denied = permissions.check(self.asked(session.database, command, args)).is_err();
                if is_denied || command.info.is(commands::spec::fact::LOOKS_UP) {
                    (plan.fits, plan.quick, plan.is_keyless) = (false, None, false);
                }
            }
        }
    }
}
